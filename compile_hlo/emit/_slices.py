"""Text of parts of tensors: slices, concatenation, padding, and slices at run-time positions."""

from collections.abc import Sequence

from compile_hlo.emit._builder import Builder, SsaValue
from compile_hlo.emit._overrides import overridable
from compile_hlo.emit._types import integers, tensor_type
from lang_core import TensorSpec


def part_of(spec: TensorSpec, ranges: Sequence[tuple[int, int]], steps: Sequence[int] = ()) -> TensorSpec:
    """Returns the spec of a slice; see ``cut``."""
    sizes = [-((start - stop) // step) for (start, stop), step in zip(ranges, steps or (1,) * spec.ndim, strict=True)]
    return TensorSpec(tuple(sizes), spec.dtype)


@overridable("slice")
def cut(e: Builder, value: SsaValue, ranges: Sequence[tuple[int, int]], steps: Sequence[int] = ()) -> SsaValue:
    """Writes a slice.

    Args:
        e: builder.
        value: tensor to take from.
        ranges: first position and the one behind the last, by axis.
        steps: distances between positions, by axis; 1 if empty.
    """
    part = part_of(value.spec, ranges, steps)
    pairs = zip(ranges, steps or (1,) * value.spec.ndim, strict=True)
    places = ", ".join([f"{start}:{stop}" if step == 1 else f"{start}:{stop}:{step}" for (start, stop), step in pairs])
    return SsaValue(e.new(f"stablehlo.slice {value.name} [{places}] : ({value.kind}) -> {tensor_type(part)}"), part)


def cut_last(e: Builder, value: SsaValue, start: int, stop: int) -> SsaValue:
    """Writes a slice along the last axis."""
    return cut(e, value, [*((0, dim) for dim in value.spec.shape[:-1]), (start, stop)])


def whole_of(parts: Sequence[SsaValue], axis: int) -> TensorSpec:
    """Returns the spec of a concatenation."""
    shape = parts[0].spec.shape
    size = sum(part.spec.shape[axis] for part in parts)
    return TensorSpec((*shape[:axis], size, *shape[axis + 1 :]), parts[0].spec.dtype)


@overridable("concatenate")
def joined(e: Builder, parts: Sequence[SsaValue], axis: int) -> SsaValue:
    """Writes a concatenation."""
    whole = whole_of(parts, axis)
    names, kinds = ", ".join([part.name for part in parts]), ", ".join([part.kind for part in parts])
    return SsaValue(e.new(f"stablehlo.concatenate {names}, dim = {axis} : ({kinds}) -> {tensor_type(whole)}"), whole)


@overridable("pad")
def padded(
    e: Builder,
    value: SsaValue,
    filler: str,
    edges: tuple[Sequence[int], Sequence[int], Sequence[int]],
    room: TensorSpec,
) -> str:
    """Writes a padding.

    Args:
        e: builder.
        value: tensor to pad.
        filler: name of the scalar to pad with.
        edges: elements to add before, after and between, by axis.
        room: spec of the result.
    """
    low, high, interior = (integers(tuple(edge)) for edge in edges)
    scalar = tensor_type(TensorSpec((), room.dtype))
    return e.new(
        f"stablehlo.pad {value.name}, {filler}, low = {low}, high = {high}, interior = {interior} : "
        f"({value.kind}, {scalar}) -> {tensor_type(room)}"
    )


def rows_of(e: Builder, value: SsaValue, rows: SsaValue) -> SsaValue:
    """Writes ``value[rows]`` of rows i32 [n], which ``gather`` clamps."""
    _, *sizes = value.spec.shape
    result = TensorSpec((*rows.spec.shape, *sizes), value.spec.dtype)
    name = e.new(
        f'"stablehlo.gather"({value.name}, {rows.name}) <{{dimension_numbers = #stablehlo.gather<'
        f"offset_dims = {integers(tuple(range(1, result.ndim)))}, collapsed_slice_dims = [0], start_index_map = [0], "
        f"index_vector_dim = 1>, slice_sizes = array<i64: {', '.join(map(str, (1, *sizes)))}>}}> : "
        f"({value.kind}, {rows.kind}) -> {tensor_type(result)}"
    )
    return SsaValue(name, result)


@overridable("dynamic_slice")
def dynamic_slice(e: Builder, value: SsaValue, starts: Sequence[SsaValue], sizes: tuple[int, ...]) -> str:
    """Writes a slice at run-time positions."""
    part = tensor_type(TensorSpec(sizes, value.spec.dtype))
    names, kinds = _listed((value, *starts))
    return e.new(f"stablehlo.dynamic_slice {names}, sizes = {integers(sizes)} : ({kinds}) -> {part}")


@overridable("dynamic_update_slice")
def dynamic_update_slice(e: Builder, value: SsaValue, update: SsaValue, starts: Sequence[SsaValue]) -> str:
    """Writes an update of a slice at run-time positions."""
    names, kinds = _listed((value, update, *starts))
    return e.new(f"stablehlo.dynamic_update_slice {names} : ({kinds}) -> {value.kind}")


def _listed(values: Sequence[SsaValue]) -> tuple[str, str]:
    return ", ".join([value.name for value in values]), ", ".join([value.kind for value in values])
