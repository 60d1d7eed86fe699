"""Encoders with packed weights on a device: what the eager context says on the same weights, verified by the export."""

import dataclasses
import os
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest

import tapeline
from lang_core import EagerExecutionContext, MappingWeights
from run_iree import available, target_of_device
from run_iree.archive import ArchiveWeights
from tapeline.bundle import ARCHIVE
from tests.goldens.encoders.cases import ENCODER_CASES, EncoderCase
from tests.goldens.encoders.files import random_encoder_weights, write_config, write_weights
from tests.goldens.samples import LONG, in_turns
from tests.product._bundles import ON_FAST_DEVICES, export
from transformer_core.models import entry_points, load_model, stored_specs

_DEVICE = os.environ.get("TAPELINE_DEVICE", "local-task")
pytestmark = ON_FAST_DEVICES
_TOLERANCE = 1e-3  # as for decoders
_SIZES: Final[dict[str, Any]] = {
    "hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16,
    "d_model": 64, "d_ff": 96, "d_kv": 16, "num_heads": 4,
}  # fmt: skip
# One case of each family of encoders of texts, in sizes of whole blocks.
_FAMILIES: Final = {
    case.config["model_type"]: case for case in reversed(ENCODER_CASES.values()) if case.lengths and not case.dense
}
_NAMES = tuple(name for name in _FAMILIES if name not in ("whisper", "clip", "siglip")) if LONG else ("bert",)


def _case(name: str) -> EncoderCase:
    case = _FAMILIES[name]
    sizes = {key: size for key, size in _SIZES.items() if case.config.get(key) is not None}
    return dataclasses.replace(case, config={**case.config, **sizes})


@pytest.mark.parametrize(("name", "encoding"), in_turns(_NAMES, ("q8_0", "q4_0")))
def test_a_bundle_says_what_the_eager_context_says(name: str, encoding: str, tmp_path: Path) -> None:
    present, why = available(_DEVICE)
    if not present:
        pytest.skip(why)
    case, directory = _case(name), tmp_path / "model"
    directory.mkdir()
    write_config(directory, case)
    specs = stored_specs(load_model(directory), MappingWeights({}))
    write_weights(directory, random_encoder_weights({key: spec.shape for key, spec in specs.items()}, case.seed))
    options = {"quantize": encoding, "verify": "auto", "target": (target_of_device(_DEVICE),)}
    bundle = export(directory, tmp_path / "bundle", sequence=8, batch=2, **options)
    model = load_model(directory, quantize=encoding)
    assert any(parameter.encoding is not None for _, parameter in model.named_parameters())
    point = entry_points(model, sequence=8, batch=2)[0]
    inputs = {argument.name: _values(argument.name, argument.spec, case) for argument in point.arguments}
    with ArchiveWeights(bundle / ARCHIVE) as weights:
        ctx = EagerExecutionContext(weights)
        expected = {key: value.numpy() for key, value in point(ctx, *map(ctx.constant, inputs.values())).items()}
    with tapeline.load(bundle, device=_DEVICE) as loaded:
        actual = loaded.run(point.name, inputs)
    for key, result in expected.items():
        assert np.abs(actual[key] - result).max() < _TOLERANCE * np.abs(result).max(), key


def _values(name: str, spec: Any, case: EncoderCase) -> np.ndarray:
    random = np.random.default_rng(case.seed)
    if name == "attention_mask":
        return (np.arange(spec.shape[1]) < np.array([[spec.shape[1]], [5]])).astype(np.int32)
    return random.integers(0 if "type" in name else 3, 2 if "type" in name else 60, spec.shape).astype(np.int32)
