import pytest

from lang_core import ConfigError
from transformer_core.family._layer_configs import DeltaConfig, ExpertsConfig
from transformer_core.layers._routing import Routing
from transformer_core.models._config_testing import read

QWEN3_NEXT = {
    "num_key_value_heads": 2,
    "head_dim": 16,
    "num_experts": 8,
    "num_experts_per_tok": 3,
    "moe_intermediate_size": 16,
    "shared_expert_intermediate_size": 12,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 6,
    "linear_conv_kernel_dim": 4,
    "num_hidden_layers": 5,
}


def test_qwen3_next():
    config = read("Qwen3Next", **QWEN3_NEXT)
    assert (config.gated, config.zero_centred, config.qk_norm, config.rope.rotated) == (True, True, True, 4)
    assert config.mixer == DeltaConfig(
        layers=(True, True, True, False, True), key_heads=2, value_heads=4, key_size=8, value_size=6, taps=4
    )
    assert config.experts == ExpertsConfig(
        routing=Routing(experts=8, chosen=3), inner=16, layers=(True,) * 5, shared=12, shared_gate=True
    )
    assert read("Qwen3Next", **QWEN3_NEXT, partial_rotary_factor=0.5).rope.rotated == 8
    kinds = ["full_attention", "linear_attention"]
    listed = read("Qwen3Next", **QWEN3_NEXT | {"num_hidden_layers": 2}, layer_types=kinds)
    assert listed.mixer is not None
    assert listed.mixer.layers == (False, True)
    by_interval = read("Qwen3Next", **QWEN3_NEXT, full_attention_interval=2)
    assert by_interval.mixer is not None
    assert by_interval.mixer.layers == (True, False, True, False, True)


@pytest.mark.parametrize("kinds", [["linear_attention"], ["linear_attention"] * 4 + ["sliding_attention"], "all"])
def test_qwen3_nexts_layers_must_be_of_known_kinds(kinds):
    with pytest.raises(
        ConfigError, match=r"'layer_types': expected a list of 5 \(num_hidden_layers\) of linear_attention or full"
    ):
        read("Qwen3Next", **QWEN3_NEXT, layer_types=kinds)


def test_a_hybrid_has_one_activation():
    with pytest.raises(ConfigError, match="'hidden_act': expected one of silu, swish; found 'gelu'"):
        read("Qwen3Next", **QWEN3_NEXT, hidden_act="gelu")


def test_qwen3_5():
    linear = {key: value for key, value in QWEN3_NEXT.items() if "expert" not in key and "moe" not in key}
    sections = {"mrope_interleaved": True, "mrope_section": [11, 11, 10], "rope_theta": 1e7, "rope_type": "default"}
    config = read("Qwen3_5", **linear, rope_parameters=sections)
    assert (config.gated, config.zero_centred, config.qk_norm, config.rope.rotated) == (True, True, True, 4)
    assert (config.rope.sections, config.rope.base) == ((), 1e7)
    assert config.mixer == DeltaConfig(
        layers=(True, True, True, False, True),
        key_heads=2,
        value_heads=4,
        key_size=8,
        value_size=6,
        taps=4,
        grouped=False,
    )
    assert config.experts is None
    sparse = read("Qwen3_5Moe", **QWEN3_NEXT)
    routing = Routing(experts=8, chosen=3, normalized=True)
    assert sparse.experts == ExpertsConfig(routing=routing, inner=16, layers=(True,) * 5, shared=12, shared_gate=True)
    with pytest.raises(ConfigError, match=r"field 'attn_output_gate': expected true, or no such field"):
        read("Qwen3_5", **linear, attn_output_gate=False)
