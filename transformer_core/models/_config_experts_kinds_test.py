"""Configurations of families whose experts are those of an earlier family."""

from typing import Any

import pytest

from lang_core import ConfigError
from transformer_core.family import ExpertsConfig
from transformer_core.layers._routing import Routing
from transformer_core.models._config_testing import read

GRANITE: dict[str, Any] = {"num_key_value_heads": 2, "num_local_experts": 8, "num_experts_per_tok": 3}


def test_granite_with_experts():
    routing = Routing(experts=8, chosen=3, normalized=True)
    plain = ExpertsConfig(routing=routing, inner=40, layers=(True,) * 3)
    assert (
        read("GraniteMoe", **GRANITE, shared_intermediate_size=16).experts == plain
    )  # the plain form has no such field
    assert read("GraniteMoeShared", **GRANITE).experts == plain
    shared = read("GraniteMoeShared", **GRANITE, shared_intermediate_size=16).experts
    assert shared is not None
    assert shared.shared == 16


HUNYUAN: dict[str, Any] = {"num_key_value_heads": 2, "head_dim": 6, "num_experts": 8}


def test_hunyuan_takes_a_number_or_one_for_each_layer():
    config = read("HunYuanMoEV1", **HUNYUAN, moe_topk=[3, 3, 3])
    assert config == read("HunYuanMoEV1", **HUNYUAN, moe_topk=3)
    assert config.experts is not None
    assert (config.experts.routing.chosen, config.experts.shared, config.qk_norm_after_rope) == (3, 40, True)


GLM4_LITE: dict[str, Any] = {
    "kv_lora_rank": 5,
    "moe_intermediate_size": 16,
    "n_routed_experts": 8,
    "n_shared_experts": 1,
    "num_experts_per_tok": 3,
    "num_key_value_heads": 6,
    "q_lora_rank": 7,
    "qk_nope_head_dim": 3,
    "qk_rope_head_dim": 4,
    "v_head_dim": 9,
}


def test_glm4_lite_says_of_each_layer_whether_it_is_dense():
    before = read("Glm4MoeLite", **GLM4_LITE).experts
    chosen = read("Glm4MoeLite", **GLM4_LITE, mlp_layer_types=["sparse", "dense", "sparse"]).experts
    assert before is not None
    assert chosen is not None
    assert (before.layers, chosen.layers) == ((False, True, True), (True, False, True))


SOLAR: dict[str, Any] = {
    "moe_intermediate_size": 16,
    "n_routed_experts": 8,
    "n_shared_experts": 1,
    "num_experts_per_tok": 3,
    "num_key_value_heads": 2,
}


def test_solar_open_has_no_dense_layer():
    config = read("SolarOpen", **SOLAR, first_k_dense_replace=2)
    assert config.experts is not None
    assert (config.experts.layers, config.rope.base, config.head_size) == ((True,) * 3, 1e6, 128)


REFUSED: list[tuple[str, dict[str, Any], dict[str, Any], str]] = [
    ("GraniteMoe", GRANITE, {"num_experts_per_tok": 9}, "routing: expected 1 to 8 experts per token; found 9"),
    ("GraniteMoeShared", GRANITE, {"shared_intermediate_size": -1}, "'shared_intermediate_size': expected an integer"),
    ("HunYuanMoEV1", HUNYUAN, {"moe_topk": [3, 2, 3]}, r"'moe_topk': expected a number, or the same number 3 times"),
    ("HunYuanMoEV1", HUNYUAN, {"num_experts": [8, 8]}, r"'num_experts': expected a number, or .*; found \[8, 8\]"),
    (
        "HunYuanMoEV1",
        HUNYUAN,
        {"num_experts": ["8"] * 3},
        "'num_experts': expected an integer .*; found '8'",
    ),
    ("HunYuanMoEV1", HUNYUAN, {"moe_topk": 9}, "routing: expected 1 to 8 experts per token; found 9"),
    (
        "Glm4MoeLite",
        GLM4_LITE,
        {"mlp_layer_types": ["sparse", "moe", "dense"]},
        r"'mlp_layer_types': expected a list of 3 \(num_hidden_layers\) of dense or sparse",
    ),
    ("Glm4MoeLite", GLM4_LITE, {"n_group": 3}, "routing: 8 experts do not make 3 equal groups"),
    ("SolarOpen", SOLAR, {"n_routed_experts": None}, "field 'n_routed_experts' is missing"),
    ("SolarOpen", SOLAR, {"use_qk_norm": True}, "'use_qk_norm': expected none or off, for SolarOpenForCausalLM does"),
]


@pytest.mark.parametrize(("family", "values", "changes", "message"), REFUSED)
def test_numbers_that_contradict_each_other_are_refused(family: str, values: Any, changes: Any, message: str):
    with pytest.raises(ConfigError, match=message):
        read(family, **{**values, **changes})
