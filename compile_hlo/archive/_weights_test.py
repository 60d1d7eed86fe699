"""An archive read as a source of weights."""

from collections.abc import Iterator
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from compile_hlo.archive import ArchiveEntry, ArchiveWeights, write_archive
from lang_core import CheckpointError, InputError, TensorSpec, WeightSource

_ARRAYS = {
    "a.weight": np.arange(6, dtype=np.float32).reshape(2, 3),
    "b.weight": np.linspace(-1, 1, 8).astype(ml_dtypes.bfloat16).reshape(4, 2, 1),
    "scale": np.array(3, np.int32),
    "none": np.zeros((0, 5), np.float32),
}


class _Source:
    def keys(self) -> Iterator[str]:
        return iter(_ARRAYS)

    def has(self, key: str) -> bool:
        return key in _ARRAYS

    def spec(self, key: str) -> TensorSpec:
        array = _ARRAYS[key]
        return TensorSpec(array.shape, {"float32": "f32", "bfloat16": "bf16", "int32": "i32"}[array.dtype.name])

    def read(self, key: str) -> np.ndarray:
        return _ARRAYS[key]

    def read_rows(self, key: str, start: int, stop: int) -> np.ndarray:
        return np.atleast_1d(_ARRAYS[key])[start:stop]

    def origin(self, key: str) -> str:
        return "memory"


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    source = _Source()
    write_archive(tmp_path / "w.irpa", [ArchiveEntry(name, name, source.spec(name)) for name in _ARRAYS], source)
    return tmp_path / "w.irpa"


def test_it_gives_what_was_written(archive: Path) -> None:
    with ArchiveWeights(archive) as weights:
        assert isinstance(weights, WeightSource)
        assert list(weights.keys()) == list(_ARRAYS)
        for name, array in _ARRAYS.items():
            assert weights.has(name)
            assert weights.spec(name) == _Source().spec(name)
            np.testing.assert_array_equal(weights.read(name), array)
            assert weights.read(name).dtype == array.dtype
            assert not weights.read(name).flags.writeable
            assert weights.origin(name) == str(archive)
        np.testing.assert_array_equal(weights.read_rows("b.weight", 1, 3), _ARRAYS["b.weight"][1:3])
        np.testing.assert_array_equal(weights.read_rows("scale", 0, 1), [3])
        kept = weights.read("a.weight")
    np.testing.assert_array_equal(kept, _ARRAYS["a.weight"])  # a view outlives the source


def test_refusals(archive: Path, tmp_path: Path) -> None:
    with ArchiveWeights(archive) as weights:
        assert not weights.has("c")
        with pytest.raises(CheckpointError, match=r"w.irpa: no parameter 'a.weigth' in the archive; did you mean 'a.w"):
            weights.read("a.weigth")
    with pytest.raises(InputError, match=r"no.irpa: cannot read the parameter archive: No such file"):
        ArchiveWeights(tmp_path / "no.irpa")
