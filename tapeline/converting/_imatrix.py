"""Importance matrices of llama.cpp: sums of squares of the inputs of each matrix over a text, in both file formats."""

import os
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
from gguf import GGMLQuantizationType

from lang_core import CheckpointError, InputError
from transformer_core.checkpoints.gguf import GgufFile, GgufSpec, GgufWriter, typed

_SUMS: Final = ".in_sum2"
_COUNTS: Final = ".counts"
_MAGIC: Final = b"GGUF"
_LEGACY: Final = ".dat"
_MOST: Final = 1 << 20  # entries, and bytes of a name
_REDO: Final = "make it again with convert --calibration or llama-imatrix"


@dataclass(frozen=True, slots=True)
class Imatrix:
    """Importance of the inputs of matrices.

    Attributes:
        sums: sums of squares, f32 [matrices, K], by the key of the tensor; experts have a matrix each.
        counts: number of inputs that were added up, f32 [matrices].
        chunks: number of chunks of the text.
        chunk_size: tokens of a chunk.
        datasets: names of the texts.
    """

    sums: Mapping[str, np.ndarray]
    counts: Mapping[str, np.ndarray]
    chunks: int = 1
    chunk_size: int = 512
    datasets: tuple[str, ...] = field(default=())

    def importance(self) -> dict[str, np.ndarray]:
        """Returns the mean squares, f32 [matrices, K]; 1 for matrices without inputs, such as experts never chosen."""
        means: dict[str, np.ndarray] = {}
        for key, sums in self.sums.items():
            counts = self.counts[key][:, np.newaxis]
            means[key] = np.where(counts > 0, sums / np.maximum(counts, 1e-9), 1).astype(np.float32)
        return means

    def write(self, path: str | os.PathLike[str]) -> None:
        """Writes the file: as GGUF, or in llama.cpp's former format if it is called ``.dat``."""
        target = Path(path)
        partial = target.with_name(f".{target.name}.partial")
        try:
            (self._write_legacy if target.suffix == _LEGACY else self._write_gguf)(partial)
            os.replace(partial, target)
        finally:
            partial.unlink(missing_ok=True)

    def _write_gguf(self, path: Path) -> None:
        f32 = GGMLQuantizationType.F32
        arrays: dict[str, np.ndarray] = {}
        for key in sorted(self.sums):
            arrays[key + _SUMS] = self.sums[key]
            arrays[key + _COUNTS] = self.counts[key][:, np.newaxis]
        metadata = {
            "general.type": typed("imatrix"),
            "imatrix.datasets": typed([*self.datasets] or [""]),
            "imatrix.chunk_count": typed(self.chunks),
            "imatrix.chunk_size": typed(self.chunk_size),
        }
        specs = {key: GgufSpec(array.shape, f32) for key, array in arrays.items()}
        with GgufWriter(path, metadata, specs) as writer:
            for key, array in arrays.items():
                writer.write(key, array.astype(np.float32))

    def _write_legacy(self, path: Path) -> None:
        means = self.importance()
        with path.open("wb") as file:
            file.write(struct.pack("<i", len(means)))
            for key in sorted(means):
                name, values = key.encode(), means[key].reshape(-1)
                calls = max(1, -(-int(self.counts[key].max()) // self.chunk_size))
                file.write(struct.pack("<i", len(name)) + name + struct.pack("<ii", calls, values.size))
                file.write((values * np.float32(calls)).astype("<f4").tobytes())
            name = (self.datasets[-1] if self.datasets else "").encode()
            file.write(struct.pack("<ii", self.chunks, len(name)) + name)


def read_imatrix(path: str | os.PathLike[str]) -> Imatrix:
    """Reads an importance matrix in either format.

    Raises:
        InputError: the file does not exist.
        CheckpointError: it is damaged, or no importance matrix.
    """
    source = Path(path)
    if not source.is_file():
        raise InputError(f"imatrix={path}: no such file: {_REDO}")
    with source.open("rb") as file:
        magic = file.read(len(_MAGIC))
    return _read_gguf(source) if magic == _MAGIC else _read_legacy(source)


def _read_gguf(path: Path) -> Imatrix:
    file = GgufFile(path)
    kind = file.metadata.get("general.type")
    if kind != "imatrix":
        raise CheckpointError(f"{path}: general.type is {kind!r}, expected 'imatrix': {_REDO}")
    sums: dict[str, np.ndarray] = {}
    counts: dict[str, np.ndarray] = {}
    for stored in file.keys():  # noqa: SIM118 - no mapping
        key = stored.removesuffix(_SUMS)
        if key == stored:
            continue
        array = np.array(file.read(stored), np.float32)
        array = array.reshape(-1, array.shape[-1])
        if not file.has(key + _COUNTS):
            raise CheckpointError(f"{path}: {key + _COUNTS} is missing: {_REDO}")
        number = np.array(file.read(key + _COUNTS), np.float32).reshape(-1)
        if len(number) != len(array) or not np.isfinite(array).all() or (array < 0).any():
            raise CheckpointError(f"{path}: {stored}: expected {len(number)} rows of finite squares: {_REDO}")
        sums[key], counts[key] = array, number
    named: Any = file.metadata.get("imatrix.datasets", [])
    datasets = tuple(str(name) for name in named) if isinstance(named, list) else ()
    numbers = [file.metadata.get(f"imatrix.chunk_{name}", default) for name, default in (("count", 1), ("size", 512))]
    chunks, size = (number if isinstance(number, int) else 1 for number in numbers)
    return Imatrix(sums, counts, chunks, size, datasets)


def _read_legacy(path: Path) -> Imatrix:
    """Reads the former format, which has the means of squares times a number of calls."""
    data, place = path.read_bytes(), 0

    def integer(what: str, most: int) -> int:
        nonlocal place
        if place + 4 > len(data):
            raise CheckpointError(f"{path}: ends before {what}: {_REDO}")
        (number,) = struct.unpack_from("<i", data, place)
        place += 4
        if not 0 <= number <= most:
            raise CheckpointError(f"{path}: {what} is {number}, expected 0 to {most}: no importance matrix, or {_REDO}")
        return number

    def taken(count: int, what: str) -> bytes:
        nonlocal place
        if place + count > len(data):
            raise CheckpointError(f"{path}: ends within {what}: {_REDO}")
        place += count
        return data[place - count : place]

    sums: dict[str, np.ndarray] = {}
    counts: dict[str, np.ndarray] = {}
    for number in range(integer("the number of entries", _MOST)):
        key = taken(integer(f"the length of name {number}", _MOST), "a name").decode("utf-8", "replace")
        calls = integer(f"the number of calls of {key!r}", 1 << 30)
        size = integer(f"the number of values of {key!r}", len(data))
        values = np.frombuffer(taken(4 * size, f"the values of {key!r}"), "<f4").astype(np.float32)
        if not size or not np.isfinite(values).all() or (values < 0).any():
            raise CheckpointError(f"{path}: {key!r}: expected finite squares: {_REDO}")
        sums[key], counts[key] = values[np.newaxis], np.array([max(1, calls)], np.float32)
    chunks, datasets = 1, ()
    if place < len(data):
        chunks = integer("the number of chunks", 1 << 30)
        datasets = (taken(integer("the length of the text's name", _MOST), "it").decode("utf-8", "replace"),)
    return Imatrix(sums, counts, max(1, chunks), 512, datasets)
