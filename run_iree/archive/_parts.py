"""Parts of tensors, read from a file without the bytes between them."""

import math
import mmap
import os
from collections.abc import Sequence

import numpy as np

from lang_core import Part, TensorSpec

Range = tuple[int, int]


def read_part(descriptor: int, offset: int, spec: TensorSpec, part: Part) -> np.ndarray:
    """Reads a part of a tensor that lies in a file.

    A contiguous part is a read-only view of a map of that part alone, so pages of other parts are not touched. Others
    are read piece by piece into memory, and are read-only, too.

    Args:
        descriptor: of the file, open for reading.
        offset: first byte of the tensor.
        spec: shape and dtype of the whole tensor.
        part: a slice of step 1 per axis.
    """
    ranges = [cut.indices(size)[:2] for cut, size in zip(part, spec.shape, strict=True)]
    shape = tuple(max(stop - start, 0) for start, stop in ranges)
    if not math.prod(shape):
        return np.empty(shape, spec.dtype.numpy)
    cut = [axis for axis, (size, whole) in enumerate(zip(shape, spec.shape, strict=True)) if size != whole]
    if not cut or math.prod(shape[: cut[-1]]) == 1:
        begin = offset + spec.dtype.itemsize * _number([start for start, _ in ranges], spec.shape)
        return _mapped(descriptor, begin, spec, shape)
    return _gathered(descriptor, offset, spec, ranges, cut[-1])


def _mapped(descriptor: int, begin: int, spec: TensorSpec, shape: tuple[int, ...]) -> np.ndarray:
    count, page = math.prod(shape), begin - begin % mmap.ALLOCATIONGRANULARITY
    length = begin - page + count * spec.dtype.itemsize
    piece = mmap.mmap(descriptor, length, access=mmap.ACCESS_READ, offset=page)
    return np.frombuffer(piece, spec.dtype.numpy, count, begin - page).reshape(shape)


def _gathered(descriptor: int, offset: int, spec: TensorSpec, ranges: Sequence[Range], last: int) -> np.ndarray:
    """Reads a part that is cut along axes up to ``last``: a piece for each index of the axes before it."""
    shape = tuple(stop - start for start, stop in ranges)
    # Pages of its own: an engine can use them where they lie, and they go back to the system when they are dropped.
    memory = mmap.mmap(-1, math.prod(shape) * spec.dtype.itemsize, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    array = np.frombuffer(memory, spec.dtype.numpy).reshape(shape)
    pieces = np.frombuffer(memory, np.uint8).reshape(math.prod(shape[:last]), -1)
    outer = np.indices(shape[:last]).reshape(last, -1).T
    for piece, index in zip(pieces, outer, strict=True):
        place = [start + int(i) for (start, _), i in zip(ranges, index, strict=False)]
        place += [start for start, _ in ranges[last:]]
        _read_into(descriptor, piece.data, offset + spec.dtype.itemsize * _number(place, spec.shape))
    array.flags.writeable = False
    return array


def _read_into(descriptor: int, memory: memoryview, offset: int) -> None:
    at = 0
    while at < len(memory):
        count = os.preadv(descriptor, [memory[at:]], offset + at)
        if not count:
            raise EOFError(f"the file ends at byte {offset + at}")
        at += count


def _number(place: Sequence[int], shape: Sequence[int]) -> int:
    """Returns the number of an element in row-major order."""
    number = 0
    for index, size in zip(place, shape, strict=True):
        number = number * size + index
    return number
