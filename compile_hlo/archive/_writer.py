"""Writes a parameter archive straight from a checkpoint, a chunk at a time."""

import os
from collections.abc import Callable, Iterator, Sequence
from typing import Final

import numpy as np

from compile_hlo.archive._hashing import FollowingHash
from compile_hlo.archive._layout import ArchiveEntry, Storage, archive_layout
from compile_hlo.archive._output import Output, replacing
from compile_hlo.archive._values import (
    LossError,
    NonFinite,
    check_lossless_range,
    convert,
    convertible,
    count_nonfinite,
)
from lang_core import CheckpointError, InputError, WeightSource

Progress = Callable[[int, int], None]
"""Called with the bytes that are written, and the bytes of the whole file."""

_PIECE_BYTES: Final = 1 << 20  # what is counted, converted and written while it is in a core's cache


class WrittenArchive:
    """What was written.

    Attributes:
        path: the file.
        total_bytes: its size.
        nonfinite: NaNs and infinities of each entry that has any, by the entry's name.
    """

    def __init__(self, path: str, total_bytes: int, nonfinite: dict[str, NonFinite], digest: FollowingHash) -> None:
        self.path: Final = path
        self.total_bytes: Final = total_bytes
        self.nonfinite: Final = nonfinite
        self._digest: Final = digest

    @property
    def sha256(self) -> str:
        """The file's SHA-256, in hexadecimal; waits for the thread that makes it.

        Raises:
            InputError: the file could not be read back.
        """
        return self._digest.hexdigest()


def write_archive(
    path: str | os.PathLike[str],
    entries: Sequence[ArchiveEntry],
    source: WeightSource,
    *,
    chunk_bytes: int = 8 << 20,
    progress: Progress | None = None,
) -> WrittenArchive:
    """Writes an .irpa archive, atomically: a file beside ``path``, renamed when it is complete.

    Memory is a few chunks and pieces, whatever the sizes of model and tensors. Values of equal dtype are copied bit by
    bit; floating dtypes are converted by rounding to nearest even. The file is not forced to the disk (``fsync``): it
    is complete for every process, but a loss of power soon after may take it.

    Args:
        path: the file. An earlier one is replaced when the new one is complete.
        entries: the parameters in the order of the file.
        source: where their data comes from.
        chunk_bytes: how many bytes of rows to ask of the source at a time.
        progress: called after every piece.

    Raises:
        CheckpointError: the source lacks a key, or has it in another shape.
        InputError: a dtype cannot be converted, a finite value would become infinite, there is no space,
            or the file cannot be written; names the parameter or the file, the bytes needed and those free.
    """
    target = os.fspath(path)
    for entry in entries:
        _check(entry, source)
    layout = archive_layout(entries)
    report = progress or _silent
    with replacing(target, layout.total_bytes) as output:
        output.write(layout.head)
        nonfinite: dict[str, NonFinite] = {}
        copier = _Copier(source, chunk_bytes, lambda: report(output.written, layout.total_bytes), output)
        for storage in layout.storages:
            output.pad_to(storage.offset)
            found = copier.copy(storage)
            nonfinite.update(dict.fromkeys(storage.names, found) if any(found) else {})
        output.pad_to(layout.total_bytes)
        report(output.written, layout.total_bytes)
    return WrittenArchive(target, layout.total_bytes, nonfinite, output.digest)


def _silent(done: int, total: int) -> None:
    """Reports nothing."""


def _check(entry: ArchiveEntry, source: WeightSource) -> None:
    found = source.spec(entry.key)
    if found.shape != entry.spec.shape:
        raise CheckpointError(
            f"parameter {entry.name!r}: {entry.key!r} in {source.origin(entry.key)} has shape {list(found.shape)}, "
            f"expected {list(entry.spec.shape)}"
        )
    if not convertible(found.dtype, entry.spec.dtype):
        raise InputError(
            f"parameter {entry.name!r}: {entry.key!r} in {source.origin(entry.key)} is {found.dtype.name}, "
            f"asked is {entry.spec.dtype.name}: only floating dtypes are converted"
        )


class _Copier:
    """Copies storages from the source to the output through buffers that are made once."""

    def __init__(self, source: WeightSource, chunk_bytes: int, report: Callable[[], None], output: Output) -> None:
        self._source: Final = source
        self._chunk_bytes: Final = chunk_bytes
        self._report: Final = report
        self._output: Final = output
        self._scratch: Final = np.empty(_PIECE_BYTES, np.uint8)
        self._converted: Final = np.empty(_PIECE_BYTES, np.uint8)

    def copy(self, storage: Storage) -> NonFinite:
        """Copies one storage; returns what it has that is not finite."""
        dtype = self._source.spec(storage.key).dtype
        nan = inf = done = 0
        for piece in self._pieces(storage):
            found = count_nonfinite(piece, dtype, self._scratch)
            nan, inf = nan + found.nan, inf + found.inf
            self._output.write(self._stored(piece, storage, done).view(np.uint8).data)
            done += piece.size
            self._report()
        if done != storage.spec.size:
            raise CheckpointError(
                f"{self._source.origin(storage.key)}: {storage.key!r} gave {done} elements, "
                f"its shape {list(storage.spec.shape)} has {storage.spec.size}"
            )
        return NonFinite(nan, inf)

    def _pieces(self, storage: Storage) -> Iterator[np.ndarray]:
        """The elements, ``[n]`` at a time in the source's dtype."""
        spec = self._source.spec(storage.key)
        if not spec.size:
            return
        itemsize = max(spec.dtype.itemsize, storage.spec.dtype.itemsize)
        count = spec.shape[0] if spec.shape else 1
        rows = max(1, self._chunk_bytes // (spec.size // count * itemsize))
        step = _PIECE_BYTES // itemsize
        for start in range(0, count, rows):
            # A row may be larger than a chunk: of a mapped source this is a view, so it is cut without being copied.
            flat = self._source.read_rows(storage.key, start, min(count, start + rows)).reshape(-1)
            for begin in range(0, flat.size, step):
                yield np.ascontiguousarray(flat[begin : begin + step])

    def _stored(self, piece: np.ndarray, storage: Storage, done: int) -> np.ndarray:
        """The piece in the storage's dtype, ``[n]``."""
        dtype = storage.spec.dtype
        if piece.dtype == dtype.numpy:
            return piece
        out = self._converted[: piece.size * dtype.itemsize].view(dtype.numpy)
        convert(piece, out)
        if any(count_nonfinite(out, dtype, self._scratch)):
            self._check_range(piece, out, storage, done)
        return out

    def _check_range(self, piece: np.ndarray, out: np.ndarray, storage: Storage, done: int) -> None:
        try:
            check_lossless_range(piece, out)
        except LossError as loss:
            place = [int(index) for index in np.unravel_index(done + loss.index, storage.spec.shape)]
            raise InputError(
                f"parameter {storage.names[0]!r}: element {place} of {storage.key!r} in "
                f"{self._source.origin(storage.key)} is {loss.value:g}, which is infinite as "
                f"{storage.spec.dtype.name}: store it as bf16 or f32"
            ) from None
