"""Damaged quantised checkpoints: each is one typed error, or is read."""

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from lang_core import CheckpointError, ConfigError, TapelineError
from tests.goldens.golden_files import QUANTIZED
from tests.goldens.quantized_models import write_tensors
from transformer_core.checkpoints import SafetensorsFile
from transformer_core.checkpoints.quantized import QuantizedWeights

_CASES = pytest.mark.parametrize("name", sorted(path.stem for path in QUANTIZED.glob("*.safetensors")))
_SMALL = {
    "F8_E4M3": ml_dtypes.float8_e4m3fn,
    "F8_E5M2": ml_dtypes.float8_e5m2,
    "F8_E8M0": ml_dtypes.float8_e8m0fnu,
}
_SCALES = ("_scale", "_scale_inv", ".scales", "_scales", "_global_scale")


def _parts(name: str) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    file = SafetensorsFile(QUANTIZED / f"{name}.safetensors")
    tensors = {
        key: file.read_stored(key).view(_SMALL.get(file.stored_form(key)[0], file.read_stored(key).dtype))
        for key in file.keys()  # noqa: SIM118
    }
    return json.loads(file.metadata["quantization_config"]), tensors


def _read(path: Path, config: dict[str, Any], tensors: dict[str, np.ndarray], changed: str = "") -> QuantizedWeights:
    """Writes a checkpoint, and reads the weights of which a part changed, or all, in both forms."""
    write_tensors(path, tensors)
    weights = QuantizedWeights(SafetensorsFile(path), config)
    for key in weights.keys():  # noqa: SIM118
        if weights.encoding(key) is not None and changed in ("", *weights._contents.matrices[key].parts):
            weights.read(key)
            if weights.packed_as(key):
                weights.read_packed_rows(key, 0, weights.spec(key).shape[0])
    return weights


@_CASES
def test_a_part_that_is_missing_is_named(name: str, tmp_path: Path) -> None:
    config, tensors = _parts(name)
    whole = _read(tmp_path / "whole", config, tensors)
    parts = {part for matrix in whole._contents.matrices.values() for part in matrix.parts}
    for key in sorted(parts):
        if key.endswith("g_idx"):
            continue  # then groups follow each other
        left = {other: tensor for other, tensor in tensors.items() if other != key}
        try:
            weights = _read(tmp_path / "model", config, left, "none")
        except CheckpointError as error:
            assert repr(key) in str(error)  # noqa: PT017
        else:  # what is left is no quantised weight: the audit has its keys as unexpected ones
            assert whole._contents.parts[key] not in weights.keys()  # noqa: SIM118
            assert parts & set(weights.keys())


@_CASES
def test_a_scale_that_is_not_finite_is_named(name: str, tmp_path: Path) -> None:
    config, tensors = _parts(name)
    for key, tensor in tensors.items():
        if not key.endswith(_SCALES) or key.endswith("input_scale"):
            continue
        for value in (np.nan, np.inf) if tensor.dtype.kind == "f" else (np.nan,):
            damaged = tensor.copy()
            if tensor.dtype == np.uint8:
                damaged.flat[-1] = 255
            else:
                damaged.flat[-1] = value
            with pytest.raises(CheckpointError, match=r"gives the scale|which is NaN"):
                _read(tmp_path / "model", config, tensors | {key: damaged}, key)


def _reshaped(tensor: np.ndarray) -> Iterator[np.ndarray]:
    """Yields the tensor in other shapes and dtypes."""
    yield tensor.reshape(-1)
    yield tensor.reshape(*tensor.shape, 1)
    yield tensor[:0]
    if tensor.ndim:
        yield tensor[:-1]
        yield tensor[..., :-1]
        yield np.concatenate([tensor, tensor])
    if tensor.ndim == 2:
        yield tensor.T.copy()
    yield np.zeros(tensor.shape, np.int64)
    yield np.zeros(tensor.shape, np.float16)
    yield np.zeros(tensor.shape, np.uint8)


@_CASES
def test_parts_of_other_shapes_and_dtypes_are_refused_or_read(name: str, tmp_path: Path) -> None:
    config, tensors = _parts(name)
    refused = 0
    for key, tensor in tensors.items():
        for other in _reshaped(np.ascontiguousarray(tensor) if tensor.ndim else tensor.reshape(1)):
            try:
                _read(tmp_path / "model", config, tensors | {key: np.ascontiguousarray(other)}, key)
            except CheckpointError as error:
                refused += 1
                assert str(tmp_path / "model") in str(error)  # noqa: PT017
            except ConfigError as error:  # a weight in a byte that no scheme has, for one
                assert "quantization_config" in str(error)  # noqa: PT017
    assert refused > 2 * len(tensors)


@_CASES
def test_random_bytes_are_read_or_refused(name: str, tmp_path: Path) -> None:
    config, tensors = _parts(name)
    rng = np.random.default_rng(11)
    for _ in range(8):
        damaged = {}
        for key, tensor in tensors.items():
            data = np.frombuffer(tensor.tobytes(), np.uint8).copy()
            places = rng.integers(0, data.size, 1 + data.size // 50)
            data[places] = rng.integers(0, 256, len(places))
            damaged[key] = data.view(tensor.dtype).reshape(tensor.shape)
        try:
            _read(tmp_path / "model", config, damaged)
        except CheckpointError:
            continue


def test_weights_that_are_yet_to_be_quantised_are_refused(tmp_path: Path) -> None:
    config, tensors = _parts("compressed_f32")
    key = "layers.0.int8_rows.weight"
    with pytest.raises(CheckpointError, match=rf"'{key}_scale' scales '{key}', which is F32 and yet to be"):
        _read(tmp_path / "model", config, tensors | {key: tensors[key].astype(np.float32)}, "none")


_JUNK = (None, True, -1, 0, 3, 1e9, "x", "re:(", [], ["a", 1], [0, 0], {}, {"a": 1}, float("nan"))


def _places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yields the places of all values inside of a JSON value."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in inner:
        yield (*path, key)
        yield from _places(item, (*path, key))


@_CASES
def test_any_field_of_the_configuration_is_checked(name: str, tmp_path: Path) -> None:
    config, tensors = _parts(name)
    write_tensors(tmp_path / "model", tensors)
    file = SafetensorsFile(tmp_path / "model")
    for path in _places(config):
        for junk in _JUNK:
            changed = copy.deepcopy(config)
            holder = changed
            for key in path[:-1]:
                holder = holder[key]
            holder[path[-1]] = junk
            try:
                weights = QuantizedWeights(file, changed)
                for key in list(weights.keys())[:3]:
                    if weights.encoding(key):
                        weights.read_rows(key, 0, 1)
            except TapelineError as error:
                assert len(str(error)) < 1500  # noqa: PT017
