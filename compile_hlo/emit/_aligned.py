"""Parts of tensors that do not begin at a multiple of four elements.

On Vulkan IREE 3.13 reads and writes four elements at a time, and rounds down where a part begins that it takes from, or
puts into, a larger tensor while it computes: ``x[3:67] * 2`` of rows of 6 is wrong, without an error. Barriers keep
what computes apart from what moves. Where parts begin right, which those of models do, the text has none.
"""

from collections.abc import Sequence

from compile_hlo.emit._emitter import Emitter
from compile_hlo.emit._types import tensor_type
from lang_core import TensorSpec

_VECTOR = 4


def begins_off(whole: Sequence[int], starts: Sequence[int], part: TensorSpec) -> bool:
    """Whether a part of a tensor may be read or written in the wrong place.

    Args:
        whole: the tensor's shape.
        starts: where the part begins, by axis; 1 for a place that is known at run time only.
        part: the part's spec.
    """
    if part.size % _VECTOR:
        return False  # such a part goes element by element
    stride = 1
    for dim, start in zip(reversed(whole), reversed(starts), strict=True):
        if start * stride % _VECTOR:
            return True
        stride *= dim
    return False


def somewhere(whole: Sequence[int], part: Sequence[int]) -> list[int]:
    """``starts`` of a part that lies where the program says when it runs."""
    return [int(size < dim) for dim, size in zip(whole, part, strict=True)]


def cut(
    e: Emitter, name: str, spec: TensorSpec, ranges: Sequence[tuple[int, int]], steps: Sequence[int] = ()
) -> tuple[str, TensorSpec]:
    """Writes a slice.

    Args:
        e: the emitter.
        name: of the tensor.
        spec: its spec.
        ranges: first place and the one behind the last, by axis.
        steps: by axis; 1 if empty.

    Returns:
        Name and spec of the part.
    """
    steps = steps or (1,) * spec.ndim
    sizes = [-((start - stop) // step) for (start, stop), step in zip(ranges, steps, strict=True)]
    part = TensorSpec(tuple(sizes), spec.dtype)
    off = steps[-1:] == (1,) and begins_off(spec.shape, [start for start, _ in ranges], part)
    source = e.barrier(name, spec) if off else name
    places = [f"{a}:{b}" if step == 1 else f"{a}:{b}:{step}" for (a, b), step in zip(ranges, steps, strict=True)]
    found = e.new(f"stablehlo.slice {source} [{', '.join(places)}] : ({tensor_type(spec)}) -> {tensor_type(part)}")
    return (e.barrier(found, part) if off else found), part


def joined(e: Emitter, parts: Sequence[tuple[str, TensorSpec]], axis: int) -> tuple[str, TensorSpec]:
    """Writes a concatenation of parts, each a name and a spec; returns the whole's."""
    first = parts[0][1]
    size = sum(spec.shape[axis] for _, spec in parts)
    whole = TensorSpec((*first.shape[:axis], size, *first.shape[axis + 1 :]), first.dtype)
    begin, off = 0, False
    for _, spec in parts:
        off = off or begins_off(whole.shape, [begin if i == axis else 0 for i in range(whole.ndim)], spec)
        begin += spec.shape[axis]
    names = [e.barrier(name, spec) if off else name for name, spec in parts]
    kinds = ", ".join([tensor_type(spec) for _, spec in parts])
    text = f"stablehlo.concatenate {', '.join(names)}, dim = {axis} : ({kinds}) -> {tensor_type(whole)}"
    return e.new(text), whole
