"""Fields of encoders as decoders, and of newer families: what they are read as, and what is refused."""

from typing import Any

import pytest

from lang_core import ConfigError
from tests.goldens.cases import CASES
from transformer_core.models import DecoderConfig


def read(case: str, **changes: Any) -> DecoderConfig:
    return DecoderConfig.from_hf({**CASES[case].config, **changes})


def test_positions_of_a_roberta_begin_after_the_row_of_the_padding():
    config = read("roberta_decoder", pad_token_id=6)
    assert config.outer is not None
    assert (config.learned_positions, config.outer.first_position) == (33, 7)


def test_layers_of_mimo_have_sizes_of_their_own():
    sizes = [read("mimo_v2_flash").sizes_of(index) for index in range(2)]
    assert [(size.kv_heads, size.sinks) for size in sizes] == [(1, False), (2, True)]
    assert read("mimo_v2_flash", sliding_window_size=6).windows == (None, 7, 7)


@pytest.mark.parametrize(
    ("case", "changes", "message"),
    [
        ("bert_decoder", {"is_decoder": False}, "'is_decoder': expected true: BertLMHeadModel is causal only"),
        ("bert_decoder", {"add_cross_attention": True}, "'add_cross_attention': expected false"),
        ("bert_decoder", {"position_embedding_type": "relative_key"}, "'position_embedding_type': expected one of"),
        ("roberta_decoder", {"pad_token_id": 39}, "'max_position_embeddings': expected more than pad_token_id"),
        ("big_bird", {"attention_type": "block_sparse"}, "'attention_type': expected original_full"),
        ("ernie", {"use_task_id": True}, "'use_task_id': expected false"),
        ("rembert", {"tie_word_embeddings": True}, "'tie_word_embeddings': expected false"),
        ("roformer", {"rotary_value": True}, "'rotary_value': expected false"),
        ("ctrl", {"layer_norm_epsilon": 1e-5}, "'layer_norm_epsilon': expected 1e-06"),
        ("gpt_neox_japanese", {"rope_theta": 50.0}, "'rope_theta': expected no such field: transformers reads rotary_"),
        ("modernbert_decoder", {"classifier_bias": True}, "'classifier_bias': expected false"),
        ("glm_moe_dsa", {"indexer_types": ["full", "shared", "full"]}, "'indexer_types': expected full in every layer"),
        ("deepseek_v32", {"q_lora_rank": None}, "'q_lora_rank': expected an integer: queries are always compressed"),
        ("deepseek_v32", {"index_head_dim": 4}, "'index_head_dim': expected at least qk_rope_head_dim"),
        ("aria_text", {"mlp_bias": True}, "'mlp_bias': expected false"),
        ("aria_text", {"hidden_act": "gelu"}, "'hidden_act': expected silu: routed experts always take it"),
        ("falcon", {"rope_parameters": {"partial_rotary_factor": 0.5}}, "rotates whole heads by one position"),
        (
            "minimax",
            {"sliding_window": 4},
            "'sliding_window': expected null: with windows, transformers'",
        ),
        ("hy_v3", {"num_shared_experts": 0}, "'num_shared_experts': expected an integer of at least 1"),
        ("axk1", {"q_lora_rank": None}, "'q_lora_rank': expected an integer: queries are always compressed"),
        ("dbrx", {"ffn_config": {"moe_normalize_expert_weights": 2}}, "'moe_normalize_expert_weights': expected 1 or"),
        ("dbrx", {"attn_config": {"rope_theta": 5.0}}, "attn_config: field 'rope_theta': expected that of rope_param"),
        ("laguna", {"gating": "none"}, "'gating': expected true, per-head or per-element"),
        (
            "laguna",
            {"num_attention_heads_per_layer": [4, 5, 4]},
            "'num_attention_heads_per_layer': expected a list of",
        ),
        ("mimo_v2_flash", {"num_key_value_heads": 4}, "'num_key_value_heads': expected a divisor of num_attention_he"),
        ("diffllama", {"num_key_value_heads": 1}, "'num_key_value_heads': expected an even number"),
        ("cohere2_moe", {"expert_selection_fn": "top"}, "'expert_selection_fn': expected one of"),
        ("lfm3", {"layer_types": ["conv", "other", "conv"]}, "'layer_types': expected a list of 3"),
    ],
)
def test_what_is_refused(case: str, changes: dict[str, Any], message: str):
    with pytest.raises(ConfigError, match=message):
        read(case, **changes)
