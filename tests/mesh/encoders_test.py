"""Encoders, and decoders with an encoder, on meshes of virtual devices say what they say on one device."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest

from lang_core import Argument, EntryPoint, MeshShape
from tests.goldens.encoders.cases import ENCODER_CASES
from tests.goldens.grown import grown
from tests.goldens.samples import LONG
from tests.mesh._models import BATCH, random_parameters
from tests.mesh._xla import MeshFunction
from transformer_core.models import Model, entry_points, load_model
from transformer_core.sharding import sharding

_ONE: Final = MeshShape.parse("tp=1")
# Norms after and before the layers, a vocabulary that is cut, pictures, caches that an encoder fills.
_SAMPLE: Final = {"bert_masked_lm": "tp=2", "modernbert_sentence": "tp=4", "vit": "tp=2,dp=2", "t5_gated": "tp=2"}


def _drawn() -> Iterator[tuple[str, str]]:
    if not LONG:
        yield from _SAMPLE.items()
        return
    for name in ENCODER_CASES:
        for mesh in ("tp=2", "tp=4", "dp=2"):
            yield name, mesh


def _model(directory: Path, name: str) -> tuple[Model[Any], tuple[EntryPoint, ...]]:
    (directory / "config.json").write_text(json.dumps(grown(dict(ENCODER_CASES[name].config))))
    model = load_model(directory, weights=False)
    sizes: dict[str, Any] = {"sequence": 6} if ENCODER_CASES[name].lengths or ENCODER_CASES[name].steps else {}
    return model, entry_points(model, batch=BATCH, **sizes)


def _given(argument: Argument, rng: np.random.Generator) -> np.ndarray:
    shape, dtype = argument.spec.shape, argument.spec.dtype.numpy
    if not argument.spec.dtype.is_integer:
        return np.asarray(rng.standard_normal(shape), dtype)
    most = 2 if "type" in argument.name or "mask" in argument.name else 5
    return np.asarray(rng.integers(1, most, shape), dtype)


@pytest.mark.parametrize(("name", "mesh"), list(_drawn()))
def test_a_mesh_says_what_one_device_says(name: str, mesh: str, tmp_path: Path) -> None:
    model, points = _model(tmp_path, name)
    weights, rng = random_parameters(model), np.random.default_rng(1)
    for point in points:
        given = [_given(argument, rng) for argument in point.arguments]
        one, cut = (
            MeshFunction(point, at, sharding(model, at).parameters, BATCH, points=points)
            for at in (_ONE, MeshShape.parse(mesh))
        )
        assert not [shape for shape in cut.gathered if len(shape) == 4]  # caches
        expected, answers = (function([*map(np.copy, given)], weights) for function in (one, cut))
        for result, value in expected.items():
            array = np.asarray(value)
            assert np.isfinite(array).all()
            np.testing.assert_allclose(np.asarray(answers[result]), array, rtol=0, atol=1e-5 * np.abs(array).max())
