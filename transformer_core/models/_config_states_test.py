"""Configurations of families with short convolutions and state-space layers."""

from typing import Any

import pytest

from lang_core import ConfigError
from transformer_core.models import DecoderConfig
from transformer_core.models import ShortConvConfig as Short

LFM2 = {
    "architectures": ["Lfm2ForCausalLM"],
    "vocab_size": 31,
    "hidden_size": 24,
    "intermediate_size": 90,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "layer_types": ["conv", "full_attention", "conv"],
}


def _read(values: dict[str, Any], **changes: Any) -> DecoderConfig:
    return DecoderConfig.from_hf({**values, **changes})


def test_lfm2_has_transformers_defaults():
    config = _read(LFM2)
    assert config.mixer == Short(layers=(True, False, True), taps=3, biased=False)
    assert (config.tied, config.qk_norm, config.norm_eps, config.rope.base) == (True, True, 1e-5, 1e6)
    assert config.intermediate == 256  # two thirds of 90, rounded up to a multiple of 256


def test_lfm2_reads_its_first_names():
    old = {name: value for name, value in LFM2.items() if name not in ("layer_types", "intermediate_size")}
    config = _read(
        old, full_attn_idxs=[1], block_ff_dim=90, block_auto_adjust_ff_dim=False, tie_embedding=False, conv_L_cache=4
    )
    assert config.mixer == Short(layers=(True, False, True), taps=4, biased=False)
    assert (config.intermediate, config.tied) == (90, False)
    assert _read(old, block_ff_dim=90, block_ffn_dim_multiplier=None).intermediate == 60
    assert _read(old).mixer == Short(layers=(False, False, False), taps=3, biased=False)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("layer_types", ["conv"]),
        ("layer_types", ["conv", "full_attention", "sliding_attention"]),
        ("layer_types", "conv"),
        ("full_attn_idxs", [3]),
        ("full_attn_idxs", 1),
        ("conv_L_cache", 0),
        ("conv_bias", "no"),
        ("block_multiple_of", 0),
        ("num_attention_heads", 5),
    ],
)
def test_lfm2_is_refused_by_name(field: str, value: Any):
    name = "num_key_value_heads" if field == "num_attention_heads" else field
    with pytest.raises(ConfigError, match=f"field '{name}': expected "):
        _read({**LFM2, **({"layer_types": None} if field == "full_attn_idxs" else {})}, **{field: value})
