"""Tensors of a checkpoint in the dtype in which they are stored, one piece at a time."""

from collections.abc import Iterator
from typing import Final

import numpy as np

from lang_core import CheckpointError, InputError, MatrixRows, WeightSource, plain_bools
from run_iree.archive._layout import ArchiveEntry
from run_iree.archive._values import LossError, NonFinite, check_lossless_range, convert, count_nonfinite

_PIECE_BYTES: Final = 1 << 20  # counted, converted and written while it is in a core's cache


class Pieces:
    """Reader that counts and converts through buffers allocated once.

    Args:
        source: source of the data.
        chunk_bytes: bytes of rows to read from the source at a time.
    """

    def __init__(self, source: WeightSource, chunk_bytes: int = 8 << 20) -> None:
        self._source: Final = source
        self._chunk_bytes: Final = chunk_bytes
        self._scratch: Final = np.empty(_PIECE_BYTES, np.uint8)
        self._converted: Final = np.empty(_PIECE_BYTES, np.uint8)

    def read(self, entry: ArchiveEntry, begin: int = 0) -> Iterator[tuple[np.ndarray, NonFinite]]:
        """Yields ``[n]`` elements at a time, in row-major order and the entry's dtype, with counts of non-finite ones.

        An array is valid until the next one is taken. The first element is number ``begin``.

        Raises:
            CheckpointError: the source gives another number of elements than its shape has.
            InputError: a finite value would become infinite; names the parameter, the element and its value.
        """
        dtype = self._source.spec(entry.key).dtype
        done = begin
        for piece in self._pieces(entry, begin):
            count = count_nonfinite(piece, dtype, self._scratch)
            yield self._stored(piece, entry, done), count
            done += piece.size
        if done != entry.spec.size:
            raise CheckpointError(
                f"{self._source.origin(entry.key)}: {entry.key!r} gave {done} elements, "
                f"its shape {list(entry.spec.shape)} has {entry.spec.size}"
            )

    def _pieces(self, entry: ArchiveEntry, first: int) -> Iterator[np.ndarray]:
        """Yields the elements from number ``first`` on, ``[n]`` at a time, in the source's dtype."""
        spec = self._source.spec(entry.key)
        if not spec.size:
            return
        itemsize = max(spec.dtype.itemsize, entry.spec.dtype.itemsize)
        count, read_rows = (spec.shape[0] if spec.shape else 1), self._source.read_rows
        if spec.ndim > 2 and spec.size // count * itemsize > self._chunk_bytes and isinstance(self._source, MatrixRows):
            count, read_rows = spec.size // spec.shape[-1], self._source.read_matrix_rows
        row = spec.size // count
        rows = max(1, self._chunk_bytes // (row * itemsize))
        step = _PIECE_BYTES // itemsize
        for start in range(first // row, count, rows):
            # A row may be larger than a chunk; in a mapped source it is a view, which is cut without a copy.
            flat = read_rows(entry.key, start, min(count, start + rows)).reshape(-1)
            for begin in range(max(0, first - start * row), flat.size, step):
                yield np.ascontiguousarray(plain_bools(flat[begin : begin + step]))

    def _stored(self, piece: np.ndarray, entry: ArchiveEntry, done: int) -> np.ndarray:
        """Returns the piece ``[n]`` in the entry's dtype."""
        dtype = entry.spec.dtype
        if piece.dtype == dtype.numpy:
            return piece
        out = self._converted[: piece.size * dtype.itemsize].view(dtype.numpy)
        convert(piece, out)
        if any(count_nonfinite(out, dtype, self._scratch)):
            self._check_range(piece, out, entry, done)
        return out

    def _check_range(self, piece: np.ndarray, out: np.ndarray, entry: ArchiveEntry, done: int) -> None:
        try:
            check_lossless_range(piece, out)
        except LossError as loss:
            place = [int(index) for index in np.unravel_index(done + loss.index, entry.spec.shape)]
            raise InputError(
                f"parameter {entry.name!r}: element {place} of {entry.key!r} in "
                f"{self._source.origin(entry.key)} is {loss.value:g}, which is infinite as "
                f"{entry.spec.dtype.name}: store it as bf16 or f32"
            ) from None
