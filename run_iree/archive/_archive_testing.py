"""Arrays, a source of weights and readers for tests of archives."""

import gc
import os
from collections.abc import Mapping
from pathlib import Path

import iree.runtime as rt
import ml_dtypes
import numpy as np

from lang_core import MappingWeights, rows_of
from run_iree.archive._layout import ArchiveEntry

BF16 = ml_dtypes.bfloat16


class Arrays(MappingWeights):
    """Source that remembers the most bytes read at once."""

    def __init__(self, arrays: Mapping[str, np.ndarray]) -> None:
        super().__init__(arrays, "arrays.safetensors")
        self.arrays = arrays
        self.most_bytes = 0

    def read(self, key: str) -> np.ndarray:
        raise AssertionError("the whole tensor was read")

    def read_rows(self, key: str, start: int, stop: int) -> np.ndarray:
        rows = rows_of(self.arrays[key], start, stop, key, "arrays.safetensors")
        self.most_bytes = max(self.most_bytes, rows.nbytes)
        return rows


def same(arrays: Mapping[str, np.ndarray]) -> list[ArchiveEntry]:
    return [ArchiveEntry(f"p.{key}", key, Arrays(arrays).spec(key)) for key in arrays]


def loaded_by_iree(path: str | os.PathLike[str]) -> dict[str, bytes]:
    """Returns the bytes of each parameter; no object of IREE is alive afterwards."""
    index = rt.ParameterIndex()
    index.load(os.fspath(path))
    data = {key: bytes(memoryview(entry.file_view)) for key, entry in index.items()}
    del index
    gc.collect()
    return data


def open_below(directory: Path) -> list[str]:
    """Returns open files of this process in a directory; elsewhere hashes of earlier tests may still be running."""
    links = (f"/proc/self/fd/{name}" for name in os.listdir("/proc/self/fd"))
    return [
        target for link in links if os.path.lexists(link) and (target := os.readlink(link)).startswith(f"{directory}/")
    ]


ARRAYS = {
    "w": np.arange(35, dtype=np.float32).reshape(5, 7),
    "b": np.array([1.5, -2, 3], BF16),
    "scalar": np.array(3, np.int64),
    "empty": np.zeros((0, 4), np.float16),
    "flag": np.array([True, False, True]),
}
