"""Emission of ops about order: sort, argmax, argmin; and of cumsum, which runs along an axis too."""

from collections.abc import Callable

from compile_dag import Node
from compile_hlo.emit._builder import Builder, SsaValue
from compile_hlo.emit._emitter import Emitter, emits
from compile_hlo.emit._overrides import overridable
from compile_hlo.emit._reduce import reduced
from compile_hlo.emit._slices import cut, joined
from compile_hlo.emit._types import tensor_type
from lang_core import TensorSpec, bool_, i32

# Writes whether a comes before b, given the names of a, of b and of their positions.
Comparator = Callable[[str, str, tuple[str, str]], str]


@emits("sort")
def _sort(e: Emitter, node: Node) -> None:
    narrow = node.inputs[0].spec
    x = TensorSpec(narrow.shape, narrow.dtype.accumulation)
    axis, descending = node.attributes
    indices = TensorSpec(x.shape, i32)
    operand = SsaValue(e.operand(node.inputs[0], x.shape, x.dtype), x)
    order = SsaValue(e.new(f"stablehlo.iota dim = {axis} : {tensor_type(indices)}"), indices)
    if x.shape[axis] <= 1:  # IREE 3.13 does not compile some programs with a sort of single elements
        e.bind(node.results[0], e.convert(operand.name, x, narrow.dtype))
        e.bind(node.results[1], order.name)
        return
    scalar = TensorSpec((), x.dtype)

    def before(a: str, b: str, places: tuple[str, str]) -> str:
        return comes_before(e, a, b, places, scalar, descending)

    result = sorted_along(e, operand, order, axis, before)
    e.bind(node.results[0], e.convert(f"{result}#0", x, narrow.dtype))
    e.bind(node.results[1], f"{result}#1")


@overridable("sort")
def sorted_along(e: Builder, x: SsaValue, order: SsaValue, axis: int, before: Comparator) -> str:
    """Writes a stable sort of elements and, with them, their positions."""
    result = e.fresh()
    e.part(
        f'{result}:2 = "stablehlo.sort"({x.name}, {order.name}) <{{dimension = {axis} : i64, is_stable = true}}> ({{'
    )
    a, b, place_a, place_b = (e.fresh() for _ in range(4))
    kind, index = (tensor_type(TensorSpec((), value.spec.dtype)) for value in (x, order))
    e.part(f"^bb0({a}: {kind}, {b}: {kind}, {place_a}: {index}, {place_b}: {index}):")
    e.line(f"stablehlo.return {before(a, b, (place_a, place_b))} : tensor<i1>")
    e.line(f"}}) : ({x.kind}, {order.kind}) -> ({x.kind}, {order.kind})")
    return result


@overridable("comes_before")
def comes_before(e: Builder, a: str, b: str, places: tuple[str, str], spec: TensorSpec, descending: bool) -> str:
    """Writes whether a comes before b in a sort, which leaves equal elements in the order of their ``places``."""
    del places
    return is_less(e, b, a, spec) if descending else is_less(e, a, b, spec)


def is_less(e: Builder, a: str, b: str, spec: TensorSpec) -> str:
    """Writes whether a is less than b, NaN being the largest number."""
    less = e.compare("LT", a, b, spec)
    if not spec.dtype.is_floating:
        return less
    flags = TensorSpec(spec.shape, bool_)
    number_a, nan_b = e.compare("EQ", a, a, spec), e.compare("NE", b, b, spec)
    only_b = e.elementwise("and", (number_a, nan_b), flags)
    return e.elementwise("or", (less, only_b), flags)


@emits("argmax", "argmin")
def _arg_reduce(e: Emitter, node: Node) -> None:
    """Writes the first index of the reduced value, by two plain reductions, which every device vectorises.

    Positions are counted from the end, so that the second one is a maximum of numbers that are not negative.
    """
    x, result = node.inputs[0].spec, node.results[0].spec
    axis, _ = node.attributes
    wide = TensorSpec(x.shape, x.dtype.accumulation)
    operand = e.operand(node.inputs[0], x.shape, wide.dtype)
    best = reduced(e, node.op.name.removeprefix("arg"), operand, wide, (axis,))
    dims = tuple(i for i in range(x.ndim) if i != axis)
    kept = tuple(x.shape[i] for i in dims)
    best = e.spread(best, TensorSpec(kept, wide.dtype), wide, dims)
    is_best = e.compare("EQ", operand, best, wide)
    if wide.dtype.is_floating:  # if there is a NaN, the reduced value is NaN, which equals nothing
        is_best = e.elementwise("or", (is_best, e.compare("NE", operand, operand, wide)), TensorSpec(x.shape, bool_))
    indices, chosen = TensorSpec(x.shape, i32), TensorSpec(kept, i32)
    last = x.shape[axis] - 1
    order = e.new(f"stablehlo.iota dim = {axis} : {tensor_type(indices)}")
    order = e.elementwise("subtract", (e.filled(last, indices), order), indices)
    order = e.select(is_best, order, e.filled(0, indices), indices)
    first = reduced(e, "max_natural", order, indices, (axis,))
    first = e.elementwise("subtract", (e.filled(last, chosen), first), chosen)
    e.alias(node, e.reshape(first, chosen, result.shape))


@emits("cumsum")
def _cumsum(e: Emitter, node: Node) -> None:
    """Writes log2(n) shifted additions (Hillis, Steele 1986); a reduce_window would take n additions per element."""
    x = node.inputs[0].spec
    axis = node.attributes[0]
    wide = TensorSpec(x.shape, x.dtype.accumulation)
    total = SsaValue(e.operand(node.inputs[0], x.shape, wide.dtype), wide)
    shift = 1
    while shift < x.shape[axis] and x.size:
        total = _plus_shifted(e, total, axis, shift)
        shift *= 2
    e.alias(node, e.convert(total.name, wide, x.dtype))


def _plus_shifted(e: Emitter, value: SsaValue, axis: int, shift: int) -> SsaValue:
    """Adds to each element along an axis the one ``shift`` before it, if there is one."""
    size = value.spec.shape[axis]
    first, above, below = (_part(e, value, axis, bounds) for bounds in ((0, shift), (shift, size), (0, size - shift)))
    total = SsaValue(e.elementwise("add", (above.name, below.name), above.spec), above.spec)
    return joined(e, [first, total], axis)


def _part(e: Emitter, value: SsaValue, axis: int, bounds: tuple[int, int]) -> SsaValue:
    """Returns the elements between two positions of one axis."""
    return cut(e, value, [bounds if i == axis else (0, dim) for i, dim in enumerate(value.spec.shape)])
