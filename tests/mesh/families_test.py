"""Every family on meshes of virtual devices says what it says on one device, with the collectives that are planned.

By default one family of each kind of layer runs on one mesh; with TAPELINE_LONG=1 in the environment every family on
every mesh.
"""

import os
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from lang_core import ConfigError, MeshShape, Module
from tests.goldens.cases import CASES
from tests.goldens.grown import grown
from tests.mesh._models import MeshModel, golden_decoder, random_parameters
from tests.mesh._xla import MeshFunction
from transformer_core import Experts
from transformer_core.models import DecoderConfig, DecoderLM, entry_points
from transformer_core.sharding import sharding

_LONG = bool(os.environ.get("TAPELINE_LONG"))
_ONE = MeshShape.parse("tp=1")
_MESHES = ("tp=2", "tp=4", "dp=2", "tp=2,dp=2", "ep=2", "ep=2,tp=2")
# Whole caches, rings, a latent beside experts, experts, a norm per head, delta rule, state space, convolution,
# ALiBi.
_SAMPLE = {
    "llama_gqa": "tp=2,dp=2",
    "mistral_window": "tp=4",
    "deepseek_v3": "tp=2",
    "mixtral": "ep=2,tp=2",
    "cohere_normed": "tp=2",
    "qwen3_next": "tp=2",
    "mamba2": "dp=2",
    "lfm2": "tp=2",
    "bloom": "tp=2,dp=2",
}
# Families whose states carry roundings of f32 on: one device is up to 4e-5 of the greatest logit from f64 itself. By
# default these run in f64 alone, where a wrong partition is no rounding.
_CARRIES = ("qwen3_next", "qwen3_5", "qwen3_5_moe", "gemma4", "gemma4_wrapped")


def _tolerance(name: str, mesh: str, expected: np.ndarray, off: float) -> float:
    """Returns the greatest difference of a mesh: where roundings carry on, ten times one device's own."""
    least = 1e-5 * np.abs(expected).max()
    if name not in _CARRIES or off <= least:
        return least
    model = golden_decoder(name, "f64")
    weights = random_parameters(model)
    cut, one = (MeshModel(model, MeshShape.parse(shape)).answers(weights)[0] for shape in (mesh, "tp=1"))
    np.testing.assert_allclose(cut, one, rtol=0, atol=1e-6 * np.abs(one).max())
    return max(least, 10 * np.abs(expected - one).max())


def _modules(model: Module) -> list[Module]:
    modules: list[Module] = []
    for layer in model.model.layers:  # pyright: ignore[reportAttributeAccessIssue] - decoders have them
        layer.visit(modules.append)
    return modules


def _first_of_each_family() -> dict[str, str]:
    """Returns names of golden cases by architecture."""
    names: dict[str, str] = {}
    for name, case in CASES.items():
        names.setdefault(case.config["architectures"][0], name)
    return names


def _drawn() -> Iterator[tuple[str, str]]:
    if not _LONG:
        yield from _SAMPLE.items()
        return
    for name in _first_of_each_family().values():
        for mesh in _MESHES:
            yield name, mesh


@pytest.mark.parametrize(("name", "mesh"), list(_drawn()))
def test_a_mesh_says_what_one_device_says(name: str, mesh: str) -> None:
    model = golden_decoder(name, "f64" if name in _CARRIES and not _LONG else "f32")
    weights = random_parameters(model)
    if "ep" in mesh and not any(isinstance(module, Experts) for module in _modules(model)):
        with pytest.raises(ConfigError, match="ep=2 cuts nothing, for the model has no experts"):
            sharding(model, MeshShape.parse(mesh))
        return
    cut = MeshModel(model, MeshShape.parse(mesh))
    (expected, tokens), (logits, chosen) = (
        MeshModel(model, _ONE).answers(weights),
        cut.answers(weights),
    )
    off = np.abs(logits - expected).max()
    assert off <= _tolerance(name, mesh, expected, off)
    np.testing.assert_array_equal(chosen, tokens)
    for function in cut.functions.values():
        assert not [shape for shape in function.gathered if len(shape) == 4]  # caches


@pytest.mark.parametrize(("mesh", "positions"), [("tp=2", "shared"), ("tp=4", "per_row")])
def test_a_dense_layer_has_two_all_reduces(mesh: str, positions: str) -> None:
    """Beside these there is one of the embedding, two of the likeliest token, and a gather of the logits."""
    model = golden_decoder("llama_gqa")
    made = MeshModel(model, MeshShape.parse(mesh), positions=positions)
    for function in made.functions.values():
        assert function.collectives == Counter({"all-reduce": 2 * model.config.layers + 3, "all-gather": 1})
        assert function.gathered == [(2, model.config.vocabulary)]


def test_groups_of_devices_hold_a_head_of_keys_and_values_each() -> None:
    config = {**grown(CASES["llama_gqa"].config, experts=True), "num_attention_heads": 8, "num_key_value_heads": 2}
    model, mesh = DecoderLM(DecoderConfig.from_hf(config)), MeshShape.parse("tp=4")
    assert sharding(model, mesh).parameters["model.layers.0.self_attn.k_proj.weight"] == ("tp:2", None)
    weights, made = random_parameters(model), MeshModel(model, mesh)
    (expected, tokens), (logits, chosen) = MeshModel(model, _ONE).answers(weights), made.answers(weights)
    assert np.abs(logits - expected).max() <= 1e-5 * np.abs(expected).max()
    np.testing.assert_array_equal(chosen, tokens)
    for function in made.functions.values():
        assert function.collectives == Counter({"all-reduce": 2 * model.config.layers + 3, "all-gather": 1})
        names = [argument.name for argument in function.lowered.signature.arguments]
        cache = function.inputs[names.index("layers.0.key_cache")]
        assert cache.shard_shape((2, 2, 24, 16)) == (2, 1, 24, 16)  # one head of two on each device


@pytest.mark.parametrize("mesh", ["ep=2", "ep=4"] if _LONG else ["ep=4"])
def test_weights_of_experts_never_travel(mesh: str) -> None:
    """Devices add up what their experts made of the tokens, once per layer, and exchange nothing else."""
    model = golden_decoder("mixtral")
    for function in MeshModel(model, MeshShape.parse(mesh)).functions.values():
        assert function.collectives == Counter({"all-reduce": model.config.layers})


def test_positions_per_row_say_what_one_device_says() -> None:
    model = golden_decoder("mistral_window")
    weights = random_parameters(model)
    one, cut = (
        MeshModel(model, MeshShape.parse(mesh), positions="per_row", window_caches="ring").answers(weights)
        for mesh in ("tp=1", "tp=2,dp=2")
    )
    assert np.abs(cut[0] - one[0]).max() <= 1e-5 * np.abs(one[0]).max()
    np.testing.assert_array_equal(cut[1], one[1])


@pytest.mark.parametrize("mesh", ["tp=2", "tp=4"] if _LONG else ["tp=2"])
def test_rows_of_slots_are_written_where_they_lie(mesh: str) -> None:
    """No cache is gathered: a call exchanges what one of a batch does, and leaves what one device leaves."""
    model = golden_decoder("llama_gqa")
    weights = random_parameters(model)
    points = {p.name: p for p in entry_points(model, slots=3, sequence=8, max_sequence=24)}
    caches = [
        np.linspace(-1, 1, a.spec.size, dtype=np.float32).reshape(a.spec.shape)
        for a in points["decode"].arguments
        if a.alias_result is not None
    ]
    row, position = np.array([2, 0, 1], np.int32), np.array([7, 19, 3], np.int32)
    calls: dict[str, list[np.ndarray]] = {
        "prefill_row": [np.arange(8, dtype=np.int32)[None] * 31, *(np.array(n, np.int32) for n in (1, 16, 4))],
        "decode": [np.array([[5], [9], [4]], np.int32), row, position, np.array([1, 0, 1], np.int32)],
    }
    for name, given in calls.items():
        one, cut = (
            MeshFunction(points[name], at, sharding(model, at).parameters, 0) for at in (_ONE, MeshShape.parse(mesh))
        )
        assert cut.collectives == Counter({"all-reduce": 2 * model.config.layers + 3, "all-gather": 1})
        assert cut.gathered == [(len(given[0]), model.config.vocabulary)]
        expected, answers = (function([*given, *map(np.copy, caches)], weights) for function in (one, cut))
        for result, array in expected.items():
            np.testing.assert_allclose(answers[result], array, rtol=0, atol=1e-5 * np.abs(array).max())


@pytest.mark.parametrize(
    ("options", "names"),
    [({"pages": (13, 4)}, ("prefill_row", "decode", "copy_row")), ({"verify_tokens": 3}, ("verify_row",))],
)
def test_pages_and_drafts_of_slots_gather_no_cache_either(options: dict[str, Any], names: tuple[str, ...]) -> None:
    model, mesh = golden_decoder("llama_gqa"), MeshShape.parse("tp=2")
    points = {p.name: p for p in entry_points(model, slots=3, sequence=8, max_sequence=24, **options)}
    for name in names:
        cut = MeshFunction(points[name], mesh, sharding(model, mesh).parameters, 0)
        computes = name != "copy_row"
        assert cut.collectives["all-reduce"] == computes * (2 * model.config.layers + 3)
        assert [shape[-1] for shape in cut.gathered] == computes * [model.config.vocabulary]
        assert set(cut.collectives) <= {"all-reduce", "all-gather"}


def test_devices_along_dp_exchange_nothing() -> None:
    for function in MeshModel(golden_decoder("llama_gqa"), MeshShape.parse("dp=2")).functions.values():
        assert not function.collectives
