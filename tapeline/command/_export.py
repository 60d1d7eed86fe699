"""Turns a checkpoint into a verified bundle.

With no flags it exports the built-in demo model to ./tapeline-demo.
"""

from typing import Final

from absl import flags

from tapeline import cli
from tapeline.bundle import PhaseMeter
from tapeline.exporting import (
    ExportOptions,
    dry_run,
    dump_tags,
    entry_point_names,
    graph_forms,
    prediction_text,
    quantize,
    run_export,
    sequence,
    stablehlo_version,
    targets,
    write_prediction,
)
from transformer_core.models import POSITIONS, WINDOW_CACHES

FLAGS: Final = flags.FlagValues()

_MODEL: Final = flags.DEFINE_string(
    "model", "demo", "A Hugging Face directory, a .gguf file, or demo.", flag_values=FLAGS
)
_OUTPUT: Final = flags.DEFINE_string("output", "tapeline-demo", "The bundle's directory.", flag_values=FLAGS)
_ENTRY_POINTS: Final = flags.DEFINE_string(
    "entry_points",
    None,
    "A comma list; by default prefill,decode of causal language models, forward of encoders.",
    flag_values=FLAGS,
)
_BATCH: Final = flags.DEFINE_integer("batch", 1, "Sequences per call.", lower_bound=1, flag_values=FLAGS)
_SEQUENCE: Final = flags.DEFINE_string(
    "sequence",
    None,
    "Tokens that one call of forward or prefill takes; by default 64, or fewer where the model can less.",
    flag_values=FLAGS,
)
_MAX_SEQUENCE: Final = flags.DEFINE_integer(
    "max_sequence",
    None,
    "Positions that the caches hold; by default what the model was trained on, 2048 at most.",
    lower_bound=1,
    flag_values=FLAGS,
)
_POSITIONS: Final = flags.DEFINE_enum(
    "positions",
    "shared",
    list(POSITIONS),
    "Of all sequences of a batch, or of each: sequences of different lengths.",
    flag_values=FLAGS,
)
_WINDOW_CACHES: Final = flags.DEFINE_enum(
    "window_caches",
    "ring",
    list(WINDOW_CACHES),
    "Layers with a window keep what it needs, or every position.",
    flag_values=FLAGS,
)
_SCORE_TOKENS: Final = flags.DEFINE_integer(
    "score_tokens",
    None,
    "Tokens that one call of score takes; by default as --sequence.",
    lower_bound=1,
    flag_values=FLAGS,
)
_DTYPE: Final = flags.DEFINE_enum(
    "dtype", "f32", ["f32", "bf16", "f16"], "Of activations and unquantized weights.", flag_values=FLAGS
)
_QUANTIZE: Final = flags.DEFINE_string(
    "quantize",
    "none",
    "How matrices are packed: none, q8_0, q4_0 (a GGUF file's in the same encoding stay as they are), or stored: each "
    "as the GGUF file has it, q4_k and q6_k too.",
    flag_values=FLAGS,
)
_WEIGHTS: Final = flags.DEFINE_enum(
    "weights",
    "external",
    ["external", "inline", "none"],
    "An archive beside the module, constants in its text, or no weight at all (module and description only).",
    flag_values=FLAGS,
)
_LOWERING: Final = flags.DEFINE_enum(
    "lowering",
    "streaming",
    ["streaming", "buffered"],
    "Record twice and keep nothing, or once and keep the graph; the text is the same.",
    flag_values=FLAGS,
)
_NUM_LAYERS: Final = flags.DEFINE_integer(
    "num_layers", None, "Only so many of the first layers.", lower_bound=1, flag_values=FLAGS
)
_TARGET: Final = flags.DEFINE_string(
    "target", "llvm-cpu", "A comma list of llvm-cpu, vmvx, vulkan-spirv, cuda; or none.", flag_values=FLAGS
)
_VERIFY: Final = flags.DEFINE_enum(
    "verify",
    "auto",
    ["auto", "none", "parse", "interpreter", "iree"],
    "parse: StableHLO's verifier. interpreter, iree: also results against the eager context. auto: as iree.",
    flag_values=FLAGS,
)
_STABLEHLO: Final = flags.DEFINE_string(
    "stablehlo_target_version",
    "1.0.0",
    "Consumers of StableHLO from this version on read module.vhlo.",
    flag_values=FLAGS,
)
_DRY_RUN: Final = flags.DEFINE_bool("dry_run", False, "Say what would be done; write nothing.", flag_values=FLAGS)
_MAX_MEMORY: Final = flags.DEFINE_string(
    "max_memory", None, "A budget such as 1GiB: work in chunks that fit, or refuse before any work.", flag_values=FLAGS
)
_RESUME: Final = flags.DEFINE_bool(
    "resume", False, "Continue an interrupted export: do only what is missing or changed.", flag_values=FLAGS
)
_TUNE: Final = flags.DEFINE_bool(
    "tune",
    False,
    "Compile with several sets of flags, measure each on this machine, and keep the best.",
    flag_values=FLAGS,
)
_KERNELS: Final = flags.DEFINE_enum(
    "kernels",
    "none",
    ["none", "tuned"],
    "tuned: attention, linear layers and norms as tools:tune found them best, else as their heuristics say.",
    flag_values=FLAGS,
)
_REPORT: Final = flags.DEFINE_string("report", None, "Also write the JSON report here.", flag_values=FLAGS)
_DUMP_TAGS: Final = flags.DEFINE_string(
    "dump_tags",
    "",
    "A comma list of tags, or globs of them, that a dump is to show: builds the debug module.",
    flag_values=FLAGS,
)
_GRAPH: Final = flags.DEFINE_string(
    "graph", "", "A comma list of dot, svg, json: the graph, repeated blocks collapsed.", flag_values=FLAGS
)


def _options() -> ExportOptions:
    return ExportOptions(
        model=_MODEL.value,
        output=cli.user_path(_OUTPUT.value),
        entry_points=entry_point_names(_ENTRY_POINTS.value) if _ENTRY_POINTS.value is not None else None,
        batch=_BATCH.value,
        sequence=sequence(_SEQUENCE.value) if _SEQUENCE.value is not None else None,
        max_sequence=_MAX_SEQUENCE.value,
        positions=_POSITIONS.value,
        window_caches=_WINDOW_CACHES.value,
        score_tokens=_SCORE_TOKENS.value,
        dtype=_DTYPE.value,
        weights=_WEIGHTS.value,
        lowering=_LOWERING.value,
        num_layers=_NUM_LAYERS.value,
        targets=targets(_TARGET.value),
        verify=_VERIFY.value,
        graph=graph_forms(_GRAPH.value),
        dump_tags=dump_tags(_DUMP_TAGS.value),
        report=cli.user_path(_REPORT.value) if _REPORT.value else None,
        stablehlo_version=stablehlo_version(_STABLEHLO.value),
        max_memory=cli.parse_size("max_memory", _MAX_MEMORY.value) if _MAX_MEMORY.value is not None else None,
        resume=_RESUME.value,
        tune=_TUNE.value,
        quantize=quantize(_QUANTIZE.value),
        kernels=_KERNELS.value,
    )


def main() -> None:
    """Exports, and prints the bundle's path."""
    options = _options()
    model, meter = cli.user_path(options.model), PhaseMeter()
    if _DRY_RUN.value:
        prediction = dry_run(options, model, meter)
        print(prediction_text(prediction))
        if options.report is not None:
            write_prediction(prediction, options.report)
    else:
        run_export(options, model, meter)
    print(options.output)
