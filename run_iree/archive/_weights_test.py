"""An archive read as a source of weights."""

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from lang_core import CheckpointError, InputError, MappingWeights, WeightSource
from run_iree.archive import ArchiveEntry, ArchiveWeights, write_archive

_ARRAYS = {
    "a.weight": np.arange(6, dtype=np.float32).reshape(2, 3),
    "b.weight": np.linspace(-1, 1, 8).astype(ml_dtypes.bfloat16).reshape(4, 2, 1),
    "scale": np.array(3, np.int32),
    "none": np.zeros((0, 5), np.float32),
}


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    source = MappingWeights(_ARRAYS)
    write_archive(tmp_path / "w.irpa", [ArchiveEntry(name, name, source.spec(name)) for name in _ARRAYS], source)
    return tmp_path / "w.irpa"


def test_it_gives_what_was_written(archive: Path) -> None:
    with ArchiveWeights(archive) as weights:
        assert isinstance(weights, WeightSource)
        assert list(weights.keys()) == list(_ARRAYS)
        for name, array in _ARRAYS.items():
            assert weights.has(name)
            assert weights.spec(name) == MappingWeights(_ARRAYS).spec(name)
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
