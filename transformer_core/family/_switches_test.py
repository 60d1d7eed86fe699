import pytest

from lang_core import ConfigError
from transformer_core._config_fields import ConfigFields
from transformer_core.family._fields import llama_kind
from transformer_core.family._switches import SWITCHES

SIZES = {
    "hidden_size": 24,
    "intermediate_size": 40,
    "num_attention_heads": 6,
    "max_position_embeddings": 64,
    "num_key_value_heads": 2,
    "num_hidden_layers": 2,
    "rms_norm_eps": 1e-6,
    "vocab_size": 50,
}
ON = {
    "clip_qkv": 8.0,
    "sliding_window": 8,
    "layer_types": ["full_attention", "sliding_attention"],
    "no_rope_layers": [1, 0],
    "attention_multiplier": 0.1,
    "query_pre_attn_scalar": 16,
    "attn_logit_softcapping": 50.0,
    "embedding_multiplier": 12.0,
    "residual_multiplier": 0.2,
    "logit_scale": 0.5,
    "logits_scaling": 4.0,
    "final_logit_softcapping": 30.0,
    "num_experts": 4,
    "num_local_experts": 4,
    "n_routed_experts": 4,
}


def read(known=None, **changes):
    return llama_kind(ConfigFields({**SIZES, **changes}, "dir/config.json"), "OwnForCausalLM", **(known or {}))


@pytest.mark.parametrize("name", SWITCHES)
def test_a_switch_that_is_on_and_unread_is_refused(name):
    value = ON.get(name, True)
    attributes = " or ".join(SWITCHES[name])
    match = rf"config\.json: field '{name}': expected .* OwnForCausalLM does not read it; found .* give llama_kind "
    with pytest.raises(ConfigError, match=match + attributes):
        read(**{name: value})


def test_a_switch_that_is_on_and_read():
    assert read({"mlp_bias": True}, mlp_bias=True).mlp_bias
    assert read({"windows": (8, 8)}, sliding_window=8).windows == (8, 8)
    assert read({"qkv_bias": True}, attention_bias=True).qkv_bias


@pytest.mark.parametrize(
    "fields",
    [
        {"mlp_bias": False, "attention_bias": None},
        {"layer_types": ["full_attention"] * 2, "no_rope_layers": [1, 1]},
        {"logit_scale": 1.0, "num_local_experts": 0},
        {"sliding_window": 8, "use_sliding_window": False},
    ],
)
def test_switches_that_are_off(fields):
    assert read(**fields) == read()
