"""Faults in ops that move, index and order elements."""

from collections.abc import Callable, Sequence
from typing import Any, Final

from compile_dag import Node, Value
from compile_hlo.emit import Builder, Emitter, SsaValue, tensor_type
from compile_hlo.emit._order import is_less
from compile_hlo.emit._slices import cut, padded, part_of, whole_of
from compile_hlo.quirks._fault import fault
from lang_core import TensorSpec, bool_, i8, i32, u8

Plain = Callable[..., Any]
_VECTOR: Final = 4


@fault("slice", targets="vulkan-spirv", cases="part_padded")
def parts_off_vectors(
    plain: Plain, e: Builder, value: SsaValue, ranges: Sequence[tuple[int, int]], steps: Sequence[int] = ()
) -> SsaValue:
    """Vulkan reads and writes four elements at a time, and rounds down if a part begins in the middle of four.

    That is so of a part that is taken from, or put into, a larger tensor while something is computed: ``x[3:67] * 2``
    of rows of 6 is wrong, without an error. Barriers separate ops that compute from ops that move data. If parts begin
    at multiples of four, as in models, the text has none.
    """
    contiguous = (steps or (1,) * value.spec.ndim)[-1:] == (1,)
    starts = [start for start, _ in ranges]
    if not contiguous or not begins_off(value.spec.shape, starts, part_of(value.spec, ranges, steps)):
        return plain(e, value, ranges, steps)
    part = plain(e, _apart(e, value), ranges, steps)
    return _apart(e, part)


@parts_off_vectors.at("concatenate")
def _joined_apart(plain: Plain, e: Builder, parts: Sequence[SsaValue], axis: int) -> SsaValue:
    whole = whole_of(parts, axis)
    begin, off = 0, False
    for part in parts:
        starts = [begin if i == axis else 0 for i in range(whole.ndim)]
        off = off or begins_off(whole.shape, starts, part.spec)
        begin += part.spec.shape[axis]
    return plain(e, [_apart(e, part) for part in parts] if off else parts, axis)


@parts_off_vectors.at("pad")
def _padded_apart(plain: Plain, e: Builder, value: SsaValue, filler: str, edges: Any, room: TensorSpec) -> str:
    off = begins_off(room.shape, edges[0], value.spec)
    return plain(e, _apart(e, value) if off else value, filler, edges, room)


@parts_off_vectors.at("dynamic_slice")
def _cut_apart(plain: Plain, e: Builder, value: SsaValue, starts: Sequence[SsaValue], sizes: tuple[int, ...]) -> str:
    part = TensorSpec(sizes, value.spec.dtype)
    if not begins_off(value.spec.shape, _somewhere(value.spec.shape, sizes), part):
        return plain(e, value, starts, sizes)
    return e.barrier(plain(e, _apart(e, value), starts, sizes), part)


@parts_off_vectors.at("dynamic_update_slice")
def _updated_apart(plain: Plain, e: Builder, value: SsaValue, update: SsaValue, starts: Sequence[SsaValue]) -> str:
    off = begins_off(value.spec.shape, _somewhere(value.spec.shape, update.spec.shape), update.spec)
    return plain(e, value, _apart(e, update) if off else update, starts)


def _apart(e: Builder, value: SsaValue) -> SsaValue:
    return SsaValue(e.barrier(*value), value.spec)


def begins_off(whole: Sequence[int], starts: Sequence[int], part: TensorSpec) -> bool:
    """Returns whether a part of a tensor may be read or written in the wrong place.

    Args:
        whole: the tensor's shape.
        starts: position at which the part begins, by axis; 1 for one that is known at run time only.
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


def _somewhere(whole: Sequence[int], part: Sequence[int]) -> list[int]:
    """Returns ``starts`` of a part that lies at a run-time position."""
    return [int(size < dim) for dim, size in zip(whole, part, strict=True)]


@fault("dynamic_slice", targets="llvm-cpu vmvx vulkan-spirv", cases="dynamic_slice_rank0_f32")
def slice_of_rank_0(
    plain: Plain, e: Builder, value: SsaValue, starts: Sequence[SsaValue], sizes: tuple[int, ...]
) -> str:
    """The compiler crashes on a dynamic_slice of rank 0.

    None is made of a whole tensor, for its starts are clamped to 0.
    """
    return value.name if value.spec.shape == sizes else plain(e, value, starts, sizes)


@fault("reverse", targets="llvm-cpu", cases="")
def reverse_of_no_axes(plain: Plain, e: Builder, name: str, spec: TensorSpec, dims: tuple[int, ...]) -> str:
    """A reverse without axes cannot be compiled."""
    return plain(e, name, spec, dims) if dims else name


@fault("reverse", targets="llvm-cpu vmvx vulkan-spirv", cases="reverse_u8")
def reverse_of_unsigned(plain: Plain, e: Builder, name: str, spec: TensorSpec, dims: tuple[int, ...]) -> str:
    """A reverse of unsigned integers cannot be compiled."""
    if spec.dtype is not u8:
        return plain(e, name, spec, dims)
    signed = TensorSpec(spec.shape, i8)
    return e.bitcast(plain(e, e.bitcast(name, spec, signed), signed, dims), signed, spec)


@fault("take_positions", targets="llvm-cpu vmvx vulkan-spirv", cases="take_rank0_int32_f32")
def take_at_one_position(plain: Plain, e: Emitter, indices: Value, size: int) -> str:
    """A gather at one position of rank 0 reads outside of the tensor instead of clamping."""
    if indices.ndim:
        return plain(e, indices, size)
    first, last = (e.scalar(number, indices.dtype) for number in (0, size - 1))
    return e.new(f"stablehlo.clamp {first}, {e.name(indices)}, {last} : {tensor_type(indices.spec)}")


@fault("take", targets="vulkan-spirv", cases="take_before_norm")
def take_before_reduction(plain: Plain, e: Emitter, node: Node, places: str) -> str:
    """A gather is fused into a reduction that follows, which the compiler cannot lower for llvmpipe."""
    return e.barrier(plain(e, node, places), node.results[0].spec)


@fault("scatter", targets="llvm-cpu vmvx vulkan-spirv", cases="scatter_add_int32_f32")
def scatter_outside(plain: Plain, e: Emitter, node: Node, into: SsaValue) -> str:
    """A scatter writes wherever its indices point, where StableHLO drops updates outside of the tensor.

    Those go to one more element along the axis, which is cut off again.
    """
    indices, axis = node.inputs[1], node.attributes[0]
    spec = into.spec
    room = TensorSpec(tuple(dim + (i == axis) for i, dim in enumerate(spec.shape)), spec.dtype)
    none = (0,) * spec.ndim
    high = tuple(int(i == axis) for i in range(spec.ndim))
    wide = padded(e, into, e.scalar(0, spec.dtype), (none, high, none), room)
    places = _inside_or_last(e, e.name(indices), indices.spec, spec.shape[axis])
    result = SsaValue(plain(e, node, SsaValue(wide, room), places), room)
    part = cut(e, result, [(0, dim) for dim in spec.shape])
    e.made_by(part.name, "scatter")
    return part.name


def _inside_or_last(e: Builder, name: str, spec: TensorSpec, size: int) -> str:
    """Returns indices with ``size`` in place of every one outside of 0 .. size - 1."""
    zero, most = e.filled(0, spec), e.filled(size, spec)
    negative = e.compare("LT", name, zero, spec)
    return e.select(negative, most, e.elementwise("minimum", (name, most), spec), spec)


@fault("comes_before", targets="llvm-cpu vmvx vulkan-spirv", cases="sort_f32")
def stable_sort(
    plain: Plain, e: Builder, a: str, b: str, places: tuple[str, str], spec: TensorSpec, descending: bool
) -> str:
    """A sort is not always stable: equal elements are ordered by their places."""
    del plain
    first, later = is_less(e, a, b, spec), is_less(e, b, a, spec)
    if descending:
        first, later = later, first
    flags = TensorSpec((), bool_)
    earlier = e.compare("LT", *places, TensorSpec((), i32))
    tied = e.elementwise("and", (e.elementwise("not", (later,), flags), earlier), flags)
    return e.elementwise("or", (first, tied), flags)


@fault("own_buffer", targets="llvm-cpu vmvx vulkan-spirv", cases="")
def shared_result(plain: Plain, e: Builder, name: str, spec: TensorSpec) -> str:
    """A result that is an argument gets that one's buffer, without a copy, even if the argument is updated in place.

    A barrier alone, or an op without effect, is removed; a padding behind a barrier is not.
    """
    del plain
    return copied(e, SsaValue(name, spec))


def copied(e: Builder, given: SsaValue) -> str:
    """Returns a value once more, in a buffer of its own whatever IREE finds out: as a part of a longer tensor."""
    spec = given.spec
    line = spec if spec.shape else TensorSpec((1,), spec.dtype)
    value = SsaValue(e.reshape(given.name, spec, line.shape), line)
    longer = TensorSpec((line.shape[0] + 1, *line.shape[1:]), spec.dtype)
    none, high = (0,) * line.ndim, (1, *(0,) * (line.ndim - 1))
    wide = SsaValue(padded(e, value, e.scalar(0, spec.dtype), (none, high, none), longer), longer)
    part = cut(e, _apart(e, wide), [(0, dim) for dim in line.shape])
    return e.reshape(part.name, line, spec.shape)


@fault(
    "sort",
    targets="llvm-cpu",
    cases="pad_sorted_f32 pad_put_f32 update_sorted_f32 sort_part_f32 sort_transposed_scatter_f32 put_part_f32",
)
def ordered_parts(plain: Plain, e: Builder, x: SsaValue, order: SsaValue, axis: int, before: Any) -> str:
    """A sort of a part, or a put into one, is fused with it, as is a padding of its result or an update with it.

    The compiler refuses such a dispatch. A transpose of a part is a part too; so is one of a scatter, of which
    ``scatter_outside`` takes a part. A copy of a result is such a padding (``shared_result``). A block's result may
    come from a sort.
    """
    result = plain(e, _after_barrier(e, x, ("part", "block")), order, axis, before)
    for place in range(2):
        e.made_by(f"{result}#{place}", "order")
    return result


@ordered_parts.at("put_rows")
def _rows_unfused(
    plain: Plain, e: Emitter, into: str, places: str, new: str, specs: tuple[TensorSpec, TensorSpec, TensorSpec]
) -> str:
    result = plain(e, _after_barrier(e, SsaValue(into, specs[0]), ("part",)).name, places, new, specs)
    e.made_by(result, "order")
    return result


@ordered_parts.at("transpose")
def _transpose_unfused(plain: Plain, e: Emitter, x: SsaValue, axes: tuple[int, ...], spec: TensorSpec) -> str:
    result = plain(e, x, axes, spec)
    if e.is_made_by(x.name, "part") or e.is_made_by(x.name, "scatter"):
        e.made_by(result, "part")
    return result


@ordered_parts.at("slice")
def _part_unfused(
    plain: Plain, e: Builder, value: SsaValue, ranges: Sequence[tuple[int, int]], steps: Sequence[int] = ()
) -> SsaValue:
    part = plain(e, value, ranges, steps)
    if isinstance(e, Emitter) and e.node is not None and e.node.op.name == "slice":
        e.made_by(part.name, "part")
    return part


@ordered_parts.at("dynamic_slice")
def _moved_part_unfused(
    plain: Plain, e: Builder, value: SsaValue, starts: Sequence[SsaValue], sizes: tuple[int, ...]
) -> str:
    part = plain(e, value, starts, sizes)
    e.made_by(part, "part")
    return part


@ordered_parts.at("pad")
def _padded_unfused(plain: Plain, e: Builder, value: SsaValue, filler: str, edges: Any, room: TensorSpec) -> str:
    return plain(e, _after_barrier(e, value, ("order", "block")), filler, edges, room)


@ordered_parts.at("dynamic_update_slice")
def _update_unfused(plain: Plain, e: Builder, value: SsaValue, update: SsaValue, starts: Sequence[SsaValue]) -> str:
    return plain(e, value, _after_barrier(e, update, ("order",)), starts)


def _after_barrier(e: Builder, value: SsaValue, makers: tuple[str, ...]) -> SsaValue:
    """Returns a value behind a barrier if one of some kinds of ops makes it."""
    return _apart(e, value) if any(e.is_made_by(value.name, maker) for maker in makers) else value
