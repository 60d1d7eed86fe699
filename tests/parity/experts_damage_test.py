"""Checkpoints of mixtures of experts that lack experts, have too many, or contradict their configuration."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy

from lang_core import CheckpointError
from tests.goldens.cases import CASES
from tests.goldens.weights import stored_weights
from transformer_core.checkpoints import SafetensorsCheckpoint, audit
from transformer_core.models import DecoderLM, load_config, stored_specs

Weights = dict[str, np.ndarray]
# Module of the experts in the keys of a layer, and the field that counts them.
_FAMILIES = {
    "deepseek_v2": ("mlp", "n_routed_experts"),
    "glm4_moe": ("mlp", "n_routed_experts"),
    "qwen2_moe": ("mlp", "num_experts"),
    "minimax_m2": ("block_sparse_moe", "num_local_experts"),
    "ernie4_5_moe": ("mlp", "moe_num_experts"),
    "phimoe": ("block_sparse_moe", "num_local_experts"),
    "olmoe": ("mlp", "num_experts"),
    "dots1": ("mlp", "n_routed_experts"),
    "glm4_moe_lite": ("mlp", "n_routed_experts"),
    "solar_open": ("mlp", "n_routed_experts"),
    "hunyuan_v1_moe": ("mlp", "num_experts"),
}
_LAYERS = {"glm4_moe_lite": 0}  # whose second layer is dense
_ROUTERS = {"hunyuan_v1_moe": "gate.wg"}
_GRANITES = pytest.mark.parametrize("name", ["granitemoe", "granitemoeshared"])
_ALL = pytest.mark.parametrize("name", _FAMILIES)


@pytest.fixture
def audited(tmp_path: Path) -> Callable[..., None]:
    def check(name: str, change: Callable[[Weights], object], **fields: Any) -> None:
        """Audits a case's checkpoint with changed tensors and fields."""
        weights = stored_weights(CASES[name])
        change(weights)
        safetensors.numpy.save_file(weights, tmp_path / "model.safetensors", metadata={"format": "pt"})
        (tmp_path / "config.json").write_text(json.dumps({**CASES[name].config, **fields}))
        with SafetensorsCheckpoint(tmp_path) as checkpoint:
            audit(checkpoint, stored_specs(DecoderLM(load_config(tmp_path)), checkpoint))

    return check


@_ALL
def test_a_missing_expert_is_named(name: str, audited: Callable[..., None]) -> None:
    part = "w1" if _FAMILIES[name][0] == "block_sparse_moe" else "gate_proj"
    key = f"model.layers.{_LAYERS.get(name, 1)}.{_FAMILIES[name][0]}.experts.3.{part}.weight"
    with pytest.raises(CheckpointError, match=f"'{key}' is missing"):
        audited(name, lambda weights: weights.pop(key))


@_ALL
def test_experts_beyond_the_configured_number_are_named(name: str, audited: Callable[..., None]) -> None:
    module, field = _FAMILIES[name]
    count = CASES[name].config[field]
    more = {"n_group": 1, "topk_group": 1} if field == "n_routed_experts" else {}
    with pytest.raises(CheckpointError, match=rf"{module}.*(has shape \[{count}|is not the model's)"):
        audited(name, lambda weights: None, **{field: count - 1}, **more)


@_ALL
def test_a_missing_router_is_named(name: str, audited: Callable[..., None]) -> None:
    key = f"model.layers.{_LAYERS.get(name, 1)}.{_FAMILIES[name][0]}.{_ROUTERS.get(name, 'gate')}.weight"
    with pytest.raises(CheckpointError, match=f"'{key}' is missing"):
        audited(name, lambda weights: weights.pop(key))


@pytest.mark.parametrize(("count", "message"), [(4, r"has shape \[5"), (6, r"the model needs \[6")])
def test_stacked_experts_have_the_configured_number(count: int, message: str, audited: Callable[..., None]) -> None:
    with pytest.raises(CheckpointError, match=message):
        audited("llama4", lambda weights: None, num_local_experts=count)


def test_missing_stacked_experts_are_named(audited: Callable[..., None]) -> None:
    key = "model.layers.1.feed_forward.experts.gate_up_proj"
    with pytest.raises(CheckpointError, match=f"'{key}' is missing"):
        audited("llama4", lambda weights: weights.pop(key))


@_GRANITES
@pytest.mark.parametrize("part", ["input_linear", "output_linear", "router.layer"])
def test_missing_experts_of_granite_are_named(name: str, part: str, audited: Callable[..., None]) -> None:
    key = f"model.layers.1.block_sparse_moe.{part}.weight"
    with pytest.raises(CheckpointError, match=f"'{key}' is missing"):
        audited(name, lambda weights: weights.pop(key))


@_GRANITES
def test_experts_of_granite_have_the_configured_number(name: str, audited: Callable[..., None]) -> None:
    with pytest.raises(CheckpointError, match=r"block_sparse_moe.* has shape \[5.*needs \[4"):
        audited(name, lambda weights: None, num_local_experts=4)


def test_a_missing_shared_expert_of_granite_is_named(audited: Callable[..., None]) -> None:
    key = "model.layers.1.shared_mlp.input_linear.weight"
    with pytest.raises(CheckpointError, match=f"'{key}' is missing"):
        audited("granitemoeshared", lambda weights: weights.pop(key))
