"""Configurations of families with short convolutions and state-space layers."""

from typing import Any

import pytest

from lang_core import ConfigError
from transformer_core.family._pattern_layers import PatternConfig
from transformer_core.layers._feed_forward import Activation
from transformer_core.layers._mamba2 import GateOrder, Mamba2Sizes
from transformer_core.layers._routing import Routing, Scoring
from transformer_core.models import DecoderConfig, ExpertsConfig, Mamba2Config
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


MAMBA2 = {
    "architectures": ["Mamba2ForCausalLM"],
    "vocab_size": 31,
    "hidden_size": 24,
    "num_hidden_layers": 2,
    "num_heads": 16,
    "head_dim": 3,
}


def test_mamba2_has_transformers_defaults_and_no_positions():
    config = _read(MAMBA2)
    sizes = Mamba2Sizes(heads=16, head_size=3, groups=8, state_size=128, taps=4)
    assert config.mixer == Mamba2Config(layers=(True, True), sizes=sizes)
    assert (config.tied, config.norm_eps, config.rotates, config.facts()["rope"]) == (False, 1e-5, False, None)
    other = _read(MAMBA2, hidden_act="gelu", use_bias=True, use_conv_bias=False, n_groups=4).mixer
    assert isinstance(other, Mamba2Config)
    assert (other.sizes.activation, other.sizes.groups) == (Activation.GELU, 4)
    assert (other.sizes.bias, other.sizes.output_bias, other.sizes.conv_bias) == (True, True, False)


@pytest.mark.parametrize("limit", [[0.0, float("inf")], [0.0, {"__float__": "Infinity"}], None])
def test_time_steps_without_a_limit(limit: Any):
    assert _read(MAMBA2, time_step_limit=limit).mixer == _read(MAMBA2).mixer


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("time_step_limit", [0.0, 1.0]),
        ("time_step_limit", [0.01, float("inf")]),
        ("head_dim", 4),
        ("n_groups", 3),
        ("hidden_act", "mish"),
        ("state_size", 0),
        ("conv_kernel", "4"),
        ("layer_norm_epsilon", -1.0),
    ],
)
def test_mamba2_is_refused_by_name(field: str, value: Any):
    with pytest.raises(ConfigError, match=f"field '{field}': expected "):
        _read(MAMBA2, **{field: value})


LFM2_MOE = {**LFM2, "architectures": ["Lfm2MoeForCausalLM"], "moe_intermediate_size": 10}


def test_lfm2_moe_has_transformers_defaults():
    routing = Routing(experts=32, chosen=4, scoring=Scoring.SIGMOID, eps=1e-6, corrected=True)
    config = _read(LFM2_MOE)
    assert config.experts == ExpertsConfig(routing=routing, inner=10, layers=(False, False, True))
    assert (config.intermediate, config.mixer) == (90, Short(layers=(True, False, True), taps=3, biased=False))


@pytest.mark.parametrize("kinds", [None, ["conv"] * 2, ["conv", "mamba", "conv"]])
def test_lfm2_moe_needs_the_kinds_of_its_layers(kinds: Any):
    with pytest.raises(ConfigError, match="field 'layer_types': expected a list of 3"):
        _read(LFM2_MOE, layer_types=kinds)


GRANITE = {
    "architectures": ["GraniteMoeHybridForCausalLM"],
    "vocab_size": 31,
    "hidden_size": 24,
    "intermediate_size": 20,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 64,
    "rms_norm_eps": 1e-5,
    "mamba_n_heads": 6,
}


def test_granite_4_has_transformers_defaults():
    config, sizes = _read(GRANITE), Mamba2Sizes(heads=6, head_size=8, groups=1, state_size=256, taps=4)
    assert config.mixer == Mamba2Config(layers=(True, True), sizes=sizes)
    routing = Routing(experts=8, chosen=2)
    assert config.experts == ExpertsConfig(routing=routing, inner=20, layers=(True, True), shared=1024)
    assert (config.rotates, config.kv_heads, config.scale) == (False, 4, 1.0)


def test_granite_4_without_states_or_routed_experts():
    kinds = {"layers_block_type": ["attention", "full_attention"]}
    config = _read(GRANITE, num_local_experts=0, position_embedding_type="rope", mamba_n_heads=7, **kinds)
    assert (config.mixer, config.experts, config.intermediate, config.rotates) == (None, None, 1024, True)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("layer_types", ["mamba"]),
        ("layer_types", ["mamba", "conv"]),
        ("layers_block_type", ["mamba"] * 3),
        ("mamba_n_heads", 5),
        ("mamba_d_head", 4),
        ("mamba_n_groups", 4),
        ("time_step_limit", [0.0, 0.5]),
        ("num_local_experts", -1),
        ("hidden_act", "mish"),
    ],
)
def test_granite_4_is_refused_by_name(field: str, value: Any):
    with pytest.raises(ConfigError, match=f"field '{field}': expected "):
        _read(GRANITE, **{field: value})


FALCON = {**GRANITE, "architectures": ["FalconH1ForCausalLM"], "num_key_value_heads": 2, "mamba_d_ssm": 48}


def test_falcon_h1_has_transformers_defaults():
    config = _read(FALCON)
    assert isinstance(config.mixer, Mamba2Config)
    assert (config.mixer.sizes.gate, config.mixer.sizes.head_size) == (GateOrder.NO_NORM, 8)
    assert (config.scale, config.rotates, config.tied) == (6**-0.5, True, False)
    normed = _read(FALCON, mamba_rms_norm=True, mamba_norm_before_gate=False, mamba_d_ssm=None, mamba_expand=3).mixer
    assert isinstance(normed, Mamba2Config)
    assert (normed.sizes.gate, normed.sizes.inner) == (GateOrder.GATE_FIRST, 72)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("mlp_multipliers", [1.0]),
        ("ssm_multipliers", [1.0] * 4),
        ("ssm_multipliers", [1.0, 1.0, 1.0, 1.0, "1"]),
        ("key_multiplier", 0.0),
        ("mamba_d_ssm", 50),
        ("mamba_d_ssm", "auto"),
        ("time_step_limit", "none"),
    ],
)
def test_falcon_h1_is_refused_by_name(field: str, value: Any):
    name = "mamba_n_heads" if value == 50 else field
    with pytest.raises(ConfigError, match=f"field '{name}': expected "):
        _read(FALCON, **{field: value})


NEMOTRON = {
    "architectures": ["NemotronHForCausalLM"],
    "vocab_size": 31,
    "hidden_size": 24,
    "num_attention_heads": 8,
    "max_position_embeddings": 64,
    "hybrid_override_pattern": "M-*E",
}


def test_nemotron_h_has_transformers_defaults():
    config = _read(NEMOTRON)
    assert isinstance(config.mixer, PatternConfig)
    assert config.mixer.kinds == ("linear_attention", "mlp", "full_attention", "moe")
    sizes = Mamba2Sizes(heads=128, head_size=64, groups=8, state_size=128, taps=4, least_step=0.001)
    assert config.mixer.sizes == sizes
    assert config.mixer.routing == Routing(experts=8, chosen=2, scoring=Scoring.SIGMOID, corrected=True)
    assert (config.layers, config.head_size, config.activation) == (4, 128, Activation.RELU_SQUARED)
    default = _read({name: value for name, value in NEMOTRON.items() if name != "hybrid_override_pattern"}).mixer
    assert isinstance(default, PatternConfig)
    assert default.kinds == ("linear_attention", "moe", "full_attention", "mlp")


def test_nemotron_h_reads_first_names_and_lists():
    config = _read(NEMOTRON, layers_block_type=["mamba", "attention"], mamba_d_conv=3, mamba_n_groups=4)
    assert isinstance(config.mixer, PatternConfig)
    assert config.mixer.kinds == ("linear_attention", "full_attention")
    assert (config.mixer.sizes.taps, config.mixer.sizes.groups) == (3, 4)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("hybrid_override_pattern", "M-*X"),
        ("hybrid_override_pattern", 4),
        ("hybrid_override_pattern", ""),
        ("layers_block_type", ["mamba", "conv"]),
        ("layers_block_type", [["mamba"]]),
        ("tie_word_embeddings", True),
        ("n_groups", 3),
        ("mlp_hidden_act", "mish"),
        ("time_step_limit", [0.0, 1.0]),
        ("moe_latent_size", 0),
        ("intermediate_size", [1, 2]),
    ],
)
def test_nemotron_h_is_refused_by_name(field: str, value: Any):
    with pytest.raises(ConfigError, match=f"field '{field}': expected "):
        _read(NEMOTRON, **{field: value})


def test_a_pattern_must_be_as_long_as_the_model():
    with pytest.raises(ConfigError, match="field 'hybrid_override_pattern': expected 5"):
        _read(NEMOTRON, num_hidden_layers=5)
