"""Table of founding behaviours: area, behaviour in one sentence, and the test that proves it, one row per line."""

# One row is one line, whatever its length: rows are added, moved and searched line by line.
# ruff: noqa: E501
# fmt: off

from typing import Final, NamedTuple


class Behaviour(NamedTuple):
    """Behaviour that the project promises.

    Attributes:
        area: one of AREAS.
        sentence: behaviour, without a full stop.
        test: ``path::function`` in the tree; ``path::Class::function`` within a class.
    """

    area: str
    sentence: str
    test: str


AREAS: Final = {
    "results": "No silent wrong result",
    "recording": "isRecording and the traceable path",
    "streaming": "Streaming tape",
    "flow": "Flow context",
    "directions": "Directions of kernels' arguments",
    "dump": "Tensor dump",
    "executor": "Kernel executor",
}

BEHAVIOURS: Final = tuple(Behaviour(*row) for row in (
    ("results", "The first op of a wrong lowering is named, and the bundle is not published", "tests/product/export_verification_test.py::test_a_wrong_rule_is_found_and_its_place_named"),
    ("results", "A wrong weight in a bundle is named", "tapeline/divergence/_locate_test.py::test_a_wrong_weight_is_named"),
    ("results", "A module with changed bytes does not load", "run_iree/sessions/_damaged_test.py::test_a_module_with_changed_bytes"),
    ("results", "A declared signature that is not the module's is refused", "run_iree/sessions/_session_test.py::test_a_signature_that_is_not_the_modules_is_refused"),
    ("results", "Wrong arguments are refused before the call", "run_iree/sessions/_session_test.py::test_wrong_arguments_are_refused_before_the_call"),
    ("results", "One tensor for two arguments is refused when one of them is donated", "run_iree/sessions/_hazards_test.py::test_one_tensor_for_two_arguments_is_refused_when_one_is_donated"),
    ("results", "An alias of another size is refused before a call", "run_iree/sessions/_hazards_test.py::test_an_alias_of_another_size_is_refused_before_a_call"),

    ("recording", "A context does not record by default", "lang_core/_context_test.py::test_a_context_does_not_record_by_default"),
    ("recording", "Overriding `isRecording` overrides `is_recording`", "lang_core/_context_test.py::test_overriding_one_spelling_overrides_both"),
    ("recording", "Contexts that do not know of recording work unchanged", "lang_core/_context_test.py::test_existing_contexts_keep_working_without_knowing_of_recording"),
    ("recording", "A graph context records only inside a recording", "compile_dag/_context_test.py::test_a_context_records_only_inside_a_recording"),
    ("recording", "One context records again and again, and numbers values alike each time", "compile_dag/_context_test.py::test_values_are_numbered_in_recording_order_and_alike_each_time"),
    ("recording", "Of nested recordings, those that asked for it get the ops of the inner ones", "compile_dag/_context_test.py::test_every_tape_around_that_asked_gets_the_ops"),
    ("recording", "A value of a closed recording is refused where that recording was not included", "compile_dag/_context_test.py::test_values_of_a_closed_recording_are_of_no_use_where_it_was_not_included"),
    ("recording", "A value of another context is refused", "compile_dag/_context_test.py::test_a_value_of_another_context"),
    ("recording", "An exception closes every recording that it leaves", "compile_dag/_context_test.py::test_an_exception_closes_every_recording_it_leaves"),
    ("recording", "Nodes know their module path and line of Python", "compile_dag/_context_test.py::test_nodes_say_where_they_come_from"),
    ("recording", "Asking a recorded value for data raises an error with op, module path and line", "compile_dag/_escape_test.py::test_asking_a_recorded_value_for_data"),
    ("recording", "An array that was computed outside does not enter a recording unseen", "compile_dag/_escape_test.py::test_data_from_outside_does_not_enter_unseen"),
    ("recording", "An array becomes a constant on demand, as a copy", "compile_dag/_escape_test.py::test_a_frozen_array_is_a_copy"),
    ("recording", "An eager context refuses recorded values", "compile_dag/_escape_test.py::test_an_eager_context_takes_no_recorded_value"),
    ("recording", "A loop is one node with two graphs, which see the values around them", "compile_dag/_control_test.py::test_a_loop_is_one_node_with_two_graphs"),
    ("recording", "A branch is one node with two graphs", "compile_dag/_control_test.py::test_a_branch_is_one_node_with_two_graphs_that_capture_its_operands"),
    ("recording", "RoPE's fast path and its ops give the same bits", "transformer_core/_rope_test.py::test_views_and_ops_give_the_same_bits"),
    ("recording", "Recorded entry points of every family give the bits of eager ones", "tests/parity/recording_test.py::test_recorded_entry_points_give_the_bits_of_eager_ones"),
    ("recording", "A graph is verified when it is recorded", "compile_dag/_record_test.py::test_record_verifies_what_it_gives"),
    ("recording", "Every op has an emission rule", "tests/emission/interpreter_test.py::test_every_op_has_a_rule_and_every_rule_an_op"),
    ("recording", "Every op has a gradient rule or a reason for none", "compile_dag/gradient/_table_test.py::test_every_op_has_a_rule_or_a_reason"),

    ("streaming", "A sink takes the events of a recording in order, and the tape keeps none", "compile_dag/_blocks_test.py::test_a_sink_takes_the_events_in_order_and_the_tape_keeps_none"),
    ("streaming", "Streamed text is the buffered lowering's, byte for byte, for random programs of blocks", "tests/streaming/identity_test.py::test_random_block_programs"),
    ("streaming", "Streamed text is the buffered lowering's for every model family", "tests/streaming/families_test.py::test_a_familys_entry_points"),
    ("streaming", "Streamed text is the buffered lowering's for a training step", "tests/gradients/training_step_test.py::test_streamed_text_is_buffered_text"),
    ("streaming", "Nothing of a block lives on after the block", "tests/streaming/identity_test.py::test_nothing_of_a_block_lives_on"),
    ("streaming", "Dead blocks go, and dead results of live blocks", "tests/streaming/identity_test.py::test_dead_blocks_and_dead_results_of_live_blocks_go"),
    ("streaming", "A model function runs once: counters, random masks and alternating loop bodies do no harm", "tests/streaming/once_test.py::test_a_model_that_differs_at_each_call_is_called_once"),
    ("streaming", "Streamed, buffered and whole-graph text are one, for random programs with literals of their own", "tests/streaming/once_test.py::test_random_programs_with_literals_of_their_own"),
    ("streaming", "A flat function and a giant block are lowered window by window", "tests/streaming/once_test.py::test_a_flat_function_and_a_giant_block_are_cut_into_windows"),
    ("streaming", "Nothing of a flat function lives on after its window", "tests/streaming/once_test.py::test_nothing_of_a_flat_function_lives_on_after_its_window"),
    ("streaming", "A lowering that fails writes nothing", "tests/streaming/failed_test.py::test_nothing_of_a_function_that_fails_or_of_those_before_it_is_written"),
    ("streaming", "Alike layers are one function", "tests/streaming/block_functions_test.py::test_alike_layers_are_one_function_and_unlike_ones_are_not"),
    ("streaming", "Several entry points share one module", "tests/streaming/identity_test.py::test_several_entry_points"),
    ("streaming", "Both lowerings of an export write the same text", "tests/product/export_forms_test.py::test_both_lowerings_write_the_same_text"),

    ("flow", "A decoder's recipe writes the text of the class, byte for byte", "tests/flow/decoders_test.py::test_the_text_is_the_same_byte_for_byte"),
    ("flow", "A recipe gives the same results eagerly and recorded", "tests/flow/decoders_test.py::test_results_are_the_same_eagerly_and_recorded"),
    ("flow", "Random recipes are one model eagerly, recorded, streamed and interpreted", "tests/flow/random_flows_test.py::test_every_flow_is_one_model_in_all_its_lives"),
    ("flow", "A stage of every layer can be replaced by name", "transformer_core/flow/_recipe_test.py::test_patch_replaces_a_stage_of_every_layer"),
    ("flow", "A recipe never changes: a patched one is another", "transformer_core/flow/_recipe_test.py::test_a_recipe_never_changes"),
    ("flow", "A recipe can include others", "transformer_core/flow/_recipe_test.py::test_flat_and_included_recipes_are_the_same_model"),
    ("flow", "The profile decides which stages a model has", "transformer_core/flow/_recipe_test.py::test_when_is_decided_by_the_profile_when_the_model_is_built"),
    ("flow", "A block whose results differ from its declaration is named", "transformer_core/flow/_block_test.py::test_a_block_that_does_otherwise_than_it_says_is_named"),
    ("flow", "Declarations of blocks are checked by specs, without data", "transformer_core/flow/_block_test.py::test_a_claim_is_checked_when_recording_by_specs_too"),
    ("flow", "No weight is read before the model runs", "transformer_core/flow/_loading_test.py::test_nothing_is_read_before_the_model_runs"),
    ("flow", "A key is one parameter however often it is loaded", "transformer_core/flow/_loading_test.py::test_a_key_is_one_parameter_however_often_it_is_loaded"),
    ("flow", "A weight that cannot be loaded is refused with key, shapes and place", "transformer_core/flow/_loading_test.py::test_what_cannot_be_loaded_names_key_shapes_and_place"),
    ("flow", "A synthesised parameter is a weight of the model", "transformer_core/flow/_loading_test.py::test_a_synthesised_parameter_is_a_weight_of_the_flow"),
    ("flow", "Loads within layers leave the layers alike", "tests/flow/archive_test.py::test_loads_in_layers_leave_the_layers_alike"),
    ("flow", "Padded prefill and decode give what the whole sequence gives", "transformer_core/flow/_memory_test.py::test_padded_prefill_and_decode_give_what_the_whole_gives"),
    ("flow", "Intermediate tensors are results of the same run where the profile asks for them", "transformer_core/flow/_memory_test.py::test_taps_come_out_of_the_one_run"),
    ("flow", "Several streams meet in one block", "tests/flow/two_streams_test.py::test_streams_meet_in_attention_and_keep_what_is_their_own"),
    ("flow", "Blocks of another package need no change of ours", "transformer_core/flow/_block_test.py::test_a_block_of_another_package_needs_nothing_of_ours_changed"),

    ("directions", "An argument that is updated is INOUT", "compile_hlo/directions/_function_test.py::test_an_argument_that_is_updated"),
    ("directions", "A donated argument that is not read is OUT", "compile_hlo/directions/_function_test.py::test_a_donated_argument_is_inout_and_out_where_it_is_not_read"),
    ("directions", "Directions of a kernel are joined over all its call sites", "compile_hlo/directions/_function_test.py::test_a_kernel_is_joined_over_all_its_call_sites"),
    ("directions", "Computed directions are those of a machine that executes the program", "compile_hlo/directions/_oracle_test.py::test_what_is_written_is_what_a_machine_writes"),
    ("directions", "Kernels of a bundle say what they do with their arguments", "tests/product/export_test.py::test_kernels_say_what_they_do_with_their_arguments"),
    ("directions", "A loader without our code reads the directions", "tests/sessions/directions_test.py::test_a_loader_without_our_code_reads_the_directions"),
    ("directions", "A donated cache is updated without a copy", "tests/sessions/directions_test.py::test_a_donated_cache_is_updated_without_a_copy"),
    ("directions", "An argument that is not donated is never written", "run_iree/sessions/_hazards_test.py::test_an_argument_that_is_not_donated_is_never_written"),
    ("directions", "A donated tensor is dead after the call", "run_iree/sessions/_session_test.py::test_a_donated_tensor_is_dead_and_stays_in_its_place_on_a_cpu"),

    ("dump", "A dump has each tensor's step, order, name and direction", "tests/sessions/dump_test.py::test_order_names_iterations_and_directions"),
    ("dump", "Arguments and results are dumped as the call took and gave them", "tests/sessions/dump_test.py::test_before_and_after_are_what_the_call_took_and_gave"),
    ("dump", "The eager context dumps the same tensors", "tests/sessions/dump_test.py::test_the_eager_context_dumps_the_same_tensors"),
    ("dump", "Tags in a model leave its text unchanged until they are selected", "tests/streaming/tags_test.py::test_a_model_that_sets_tags_has_the_text_of_one_that_does_not"),
    ("dump", "A glob that matches no tag lists near names", "tests/streaming/tags_test.py::test_a_glob_that_matches_nothing"),
    ("dump", "Payloads of every dtype come back bit by bit", "run_iree/dump/_dump_test.py::test_payloads_of_every_dtype_come_back_bit_by_bit"),
    ("dump", "Limits drop payloads and count them", "run_iree/dump/_dump_test.py::test_limits_drop_payloads_and_count_them"),
    ("dump", "An exception leaves a dump that can be read", "run_iree/dump/_dump_test.py::test_an_exception_ends_a_dump_that_can_be_read"),
    ("dump", "Prefill and every decoded token are steps of a dump", "tests/product/dump_test.py::test_prefill_and_every_decoded_token_are_steps"),
    ("dump", "A bundle's module is the same with and without a debug module beside it", "tests/product/dump_test.py::test_the_module_itself_is_as_without_dump_tags"),

    ("executor", "A call is tuned once and remembered", "autotune/selection/_chain_test.py::test_a_call_is_tuned_once_and_then_remembered"),
    ("executor", "Another process finds what was tuned", "autotune/selection/_chain_test.py::test_the_persistent_tier_serves_another_process"),
    ("executor", "A given configuration wins and leaves no trace", "autotune/selection/_chain_test.py::test_an_override_wins_and_leaves_no_trace"),
    ("executor", "The innermost overlay counts and goes with its block", "autotune/selection/_chain_test.py::test_the_innermost_overlay_counts_and_goes_with_its_block"),
    ("executor", "Heuristic configurations are never stored as tuned", "autotune/selection/_chain_test.py::test_heuristics_are_never_stored_as_tuned"),
    ("executor", "Threads that want the same call tune it once", "autotune/selection/_chain_test.py::test_threads_that_want_the_same_call_tune_it_once"),
    ("executor", "Keys are those of another process", "autotune/kernel/_invocation_test.py::test_keys_are_those_of_another_process"),
    ("executor", "A changed source of a kernel is another entry of the cache", "autotune/caches/_persistent_test.py::test_another_source_of_the_kernel_is_another_entry"),
    ("executor", "Killed processes lose nothing that was reported as stored", "autotune/caches/_persistent_test.py::test_processes_that_are_killed_lose_nothing_that_was_reported"),
    ("executor", "The most specific variant of a method runs", "autotune/_executor_test.py::test_the_most_specific_variant_runs"),
    ("executor", "`explain` names the tier that decided", "autotune/_executor_test.py::test_explain_says_the_tier"),
    ("executor", "Nothing is tuned while JAX traces", "autotune/_jax_arrays_test.py::test_nothing_is_tuned_while_jax_traces"),
    ("executor", "A recorded call stands under its label in what JAX lowers", "autotune/_jax_arrays_test.py::test_labels_are_found_again_in_what_jax_lowers"),
    ("executor", "Gradients of kernels are those of JAX", "autotune/_gradient_rule_test.py::test_gradients_of_kernels_are_those_of_jax"),
    ("executor", "Eager results and those of both compilers agree", "autotune/iree_compiler/_iree_test.py::test_eager_and_both_engines_agree"),
    ("executor", "Recorded calls are tuned in a process of their own", "autotune/records/_recorded_calls_test.py::test_a_file_is_tuned_by_another_process_than_recorded_it"),
    ("executor", "A model takes kernels in place of its composites, with the goldens' tokens", "tests/parity/kernels_test.py::test_every_golden_with_the_last_candidate_of_every_kernel"),
))
