"""Half-known configurations of the newest families: each fault is one error that names the field."""

from typing import Any

import pytest

from lang_core import ConfigError
from transformer_core.models._config_testing import read

_SLIDING, _FULL = "sliding_attention", "full_attention"
_HEADS: dict[str, Any] = {"num_key_value_heads": 2}
_WIDE: dict[str, Any] = {**_HEADS, "head_dim": 6}
_GRANITE: dict[str, Any] = {**_HEADS, "num_local_experts": 8, "num_experts_per_tok": 3}
_OLMOE: dict[str, Any] = {**_HEADS, "num_experts": 8, "num_experts_per_tok": 3}
_HUNYUAN: dict[str, Any] = {**_WIDE, "num_experts": 8, "moe_topk": 2}
_GROUPED: dict[str, Any] = {
    **_HEADS,
    "moe_intermediate_size": 16,
    "n_routed_experts": 8,
    "n_shared_experts": 1,
    "num_experts_per_tok": 3,
}
_LATENT: dict[str, Any] = {
    **_GROUPED,
    "kv_lora_rank": 5,
    "num_key_value_heads": 6,
    "q_lora_rank": 7,
    "qk_nope_head_dim": 3,
    "qk_rope_head_dim": 4,
    "v_head_dim": 9,
}
_KNOWN: dict[str, dict[str, Any]] = {
    "Apertus": _HEADS, "Cwm": _HEADS, "Dots1": _GROUPED, "Glm4MoeLite": _LATENT, "GraniteMoe": _GRANITE,
    "GraniteMoeShared": _GRANITE, "HunYuanMoEV1": _HUNYUAN, "Jais2": {}, "Ministral": _HEADS, "Olmo": _HEADS,
    "Olmoe": _OLMOE, "SolarOpen": _GROUPED, "VaultGemma": _WIDE,
}  # fmt: skip
_WITH_WINDOWS = ("Cwm", "Dots1", "Ministral", "VaultGemma")
_WITHOUT = [family for family in _KNOWN if family not in _WITH_WINDOWS]


@pytest.mark.parametrize("types", [[_FULL] * 2, [_FULL, _SLIDING, "linear_attention"], _FULL])
@pytest.mark.parametrize("family", _WITH_WINDOWS)
def test_layer_types_are_one_of_two_for_each_layer(family: str, types: Any) -> None:
    expected = (
        r"'layer_types': expected a list of 3 \(num_hidden_layers\) of full_attention or sliding_attention; found"
    )
    with pytest.raises(ConfigError, match=expected):
        read(family, **_KNOWN[family], layer_types=types)


@pytest.mark.parametrize("changes", [{"layer_types": [_SLIDING] * 3}, {"sliding_window": 4}])
@pytest.mark.parametrize("family", _WITHOUT)
def test_windows_of_families_without_are_refused(family: str, changes: dict[str, Any]) -> None:
    (field,) = changes
    with pytest.raises(ConfigError, match=f"'{field}': expected none or off, for {family}ForCausalLM does not read it"):
        read(family, **_KNOWN[family], **changes)


_REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("Apertus", {"hidden_act": "silu"}, "'hidden_act': expected one of xielu; .*found 'silu'"),
    ("Apertus", {"attention_bias": 0}, "'attention_bias': expected true or false; found 0"),
    ("Apertus", {"mlp_bias": True}, "'mlp_bias': expected none or off, for ApertusForCausalLM does not read it"),
    ("Apertus", {"num_key_value_heads": 4}, r"'num_key_value_heads': expected a divisor of num_attention_heads \(6\)"),
    ("Apertus", {"rope_parameters": {"rope_type": "llama3"}}, "rope_parameters: field 'low_freq_factor' is missing"),
    ("Cwm", {"sliding_window": 0}, "'sliding_window': expected an integer of at least 1; found 0"),
    (
        "Cwm",
        {"sliding_window": "null"},
        "'sliding_window': expected an integer .*, for some layers are of type sliding",
    ),
    ("Cwm", {"mlp_bias": 1}, "'mlp_bias': expected true or false; found 1"),
    ("Dots1", {"n_routed_experts": None}, "field 'n_routed_experts' is missing: expected an integer of at least 1"),
    ("Dots1", {"moe_intermediate_size": None}, "field 'moe_intermediate_size' is missing"),
    ("Dots1", {"n_group": 3}, "routing: 8 experts do not make 3 equal groups of 2 or more"),
    ("Dots1", {"num_experts_per_tok": 9}, "routing: expected 1 to 8 experts per token; found 9"),
    ("Dots1", {"first_k_dense_replace": -1}, "'first_k_dense_replace': expected an integer of at least 0; found -1"),
    ("Dots1", {"scoring_func": "softmax"}, "'scoring_func': expected one of sigmoid; found 'softmax'"),
    ("Glm4MoeLite", {"kv_lora_rank": None}, "field 'kv_lora_rank' is missing: expected an integer of at least 1"),
    ("Glm4MoeLite", {"n_routed_experts": None}, "field 'n_routed_experts' is missing"),
    ("Glm4MoeLite", {"mlp_layer_types": ["sparse"] * 2}, r"'mlp_layer_types': expected a list of 3 \(num_hidden_lay"),
    ("GraniteMoe", {"num_local_experts": 0}, "'num_local_experts': expected an integer of at least 1; found 0"),
    ("GraniteMoeShared", {"num_experts_per_tok": 9}, "routing: expected 1 to 8 experts per token; found 9"),
    ("HunYuanMoEV1", {"num_experts": None}, "routing: expected 1 to 1 experts per token; found 2"),
    ("Jais2", {"attention_bias": "no"}, "'attention_bias': expected true or false; found 'no'"),
    ("Ministral", {"sliding_window": -1}, "'sliding_window': expected an integer of at least 1; found -1"),
    ("Olmo", {"clip_qkv": -1.0}, "'clip_qkv': expected a finite number above 0; found -1.0"),
    ("Olmo", {"attention_bias": "yes"}, "'attention_bias': expected true or false; found 'yes'"),
    ("Olmo", {"use_qk_norm": True}, "'use_qk_norm': expected none or off, for OlmoForCausalLM does not read it"),
    ("Olmo", {"num_key_value_heads": 4}, r"'num_key_value_heads': expected a divisor of num_attention_heads \(6\)"),
    ("Olmoe", {"num_experts": 0}, "'num_experts': expected an integer of at least 1; found 0"),
    ("Olmoe", {"num_experts_per_tok": 9}, "routing: expected 1 to 8 experts per token; found 9"),
    ("Olmoe", {"norm_topk_prob": "yes"}, "'norm_topk_prob': expected true or false; found 'yes'"),
    ("Olmoe", {"clip_qkv": "much"}, "'clip_qkv': expected a finite number above 0; found 'much'"),
    ("SolarOpen", {"num_experts_per_tok": 9}, "routing: expected 1 to 8 experts per token; found 9"),
    ("VaultGemma", {"sliding_window": 0}, "'sliding_window': expected an integer of at least 1; found 0"),
    ("VaultGemma", {"query_pre_attn_scalar": 0}, "'query_pre_attn_scalar': expected a finite number above 0; found 0"),
    ("VaultGemma", {"attn_logit_softcapping": -1}, "'attn_logit_softcapping': expected a finite number above 0"),
]


@pytest.mark.parametrize(("family", "changes", "message"), _REFUSED)
def test_a_field_that_is_wrong_is_named(family: str, changes: dict[str, Any], message: str) -> None:
    read(family, **_KNOWN[family])
    with pytest.raises(ConfigError, match=message):
        read(family, **{**_KNOWN[family], **changes})
