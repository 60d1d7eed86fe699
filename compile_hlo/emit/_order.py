"""Emission of ops about order: sort, argmax, argmin; and of cumsum, which runs along an axis too."""

import math

from compile_dag import Node
from compile_hlo.emit._aligned import cut, joined
from compile_hlo.emit._elementwise import wide_dtype
from compile_hlo.emit._emitter import Emitter, emits
from compile_hlo.emit._reduce import reduced
from compile_hlo.emit._types import integers, tensor_type
from lang_core import TensorSpec, bool_, i32


@emits("sort")
def _sort(e: Emitter, node: Node) -> None:
    narrow = node.inputs[0].spec
    x = TensorSpec(narrow.shape, wide_dtype(narrow.dtype))
    axis, descending = node.attributes
    indices = TensorSpec(x.shape, i32)
    operand = e.operand(node.inputs[0], x.shape, x.dtype)
    order = e.new(f"stablehlo.iota dim = {axis} : {tensor_type(indices)}")
    x_type, scalar, index = tensor_type(x), TensorSpec((), x.dtype), tensor_type(TensorSpec((), i32))
    infinity = e.scalar(math.inf, x.dtype) if x.dtype.is_floating else ""
    result = e.fresh()
    e.line(f'{result}:2 = "stablehlo.sort"({operand}, {order}) <{{dimension = {axis} : i64, is_stable = true}}> ({{')
    a, b, place_a, place_b = (e.fresh() for _ in range(4))
    kind = tensor_type(scalar)
    e.line(f"^bb0({a}: {kind}, {b}: {kind}, {place_a}: {index}, {place_b}: {index}):")
    # IREE 3.13's sort is not always stable, so equal elements are ordered by their places.
    first, later = _before(e, a, b, scalar, infinity), _before(e, b, a, scalar, infinity)
    if descending:
        first, later = later, first
    earlier = e.compare("LT", place_a, place_b, TensorSpec((), i32))
    not_later = e.new(f"stablehlo.not {later} : tensor<i1>")
    tied = e.new(f"stablehlo.and {not_later}, {earlier} : tensor<i1>")
    e.line(f"stablehlo.return {e.new(f'stablehlo.or {first}, {tied} : tensor<i1>')} : tensor<i1>")
    e.line(f"}}) : ({x_type}, {tensor_type(indices)}) -> ({x_type}, {tensor_type(indices)})")
    e.bind(node.results[0], e.convert(f"{result}#0", x, narrow.dtype))
    e.bind(node.results[1], f"{result}#1")


def _before(e: Emitter, a: str, b: str, spec: TensorSpec, infinity: str) -> str:
    """Whether a is less than b, NaN being the largest number: IREE's vmvx takes every x for equal to itself."""
    less = e.compare("LT", a, b, spec)
    if not spec.dtype.is_floating:
        return less
    number_a, number_b = (e.compare("LE", name, infinity, spec) for name in (a, b))
    nan_b = e.new(f"stablehlo.not {number_b} : tensor<i1>")
    only_b = e.new(f"stablehlo.and {number_a}, {nan_b} : tensor<i1>")
    return e.new(f"stablehlo.or {less}, {only_b} : tensor<i1>")


@emits("argmax", "argmin")
def _arg_reduce(e: Emitter, node: Node) -> None:
    """The first index of the reduced value, in two plain reductions, which every device vectorises."""
    x, result = node.inputs[0].spec, node.results[0].spec
    axis, _ = node.attributes
    wide = TensorSpec(x.shape, wide_dtype(x.dtype))
    operand = e.operand(node.inputs[0], x.shape, wide.dtype)
    best = reduced(e, node.op.name.removeprefix("arg"), operand, wide, (axis,))
    dims = tuple(i for i in range(x.ndim) if i != axis)
    source = tensor_type(TensorSpec(tuple(x.shape[i] for i in dims), wide.dtype))
    best = e.new(f"stablehlo.broadcast_in_dim {best}, dims = {integers(dims)} : ({source}) -> {tensor_type(wide)}")
    found = e.compare("EQ", operand, best, wide)
    if wide.dtype.is_floating:  # where there is a NaN, the reduced value is NaN, which equals nothing
        flags = tensor_type(TensorSpec(x.shape, bool_))
        number = e.compare("LE", operand, e.constant(wide.dtype.numpy.type(math.inf), wide), wide)
        found = e.new(f"stablehlo.or {found}, {e.new(f'stablehlo.not {number} : {flags}')} : {flags}")
    indices = TensorSpec(x.shape, i32)
    order = e.new(f"stablehlo.iota dim = {axis} : {tensor_type(indices)}")
    last = e.constant(i32.numpy.type(x.shape[axis] - 1), indices)
    order = e.select(found, order, last, indices)
    first = reduced(e, "min", order, indices, (axis,))
    e.alias(node, e.reshape(first, TensorSpec(tuple(x.shape[i] for i in dims), i32), result.shape))


@emits("cumsum")
def _cumsum(e: Emitter, node: Node) -> None:
    """log2(n) shifted additions (Hillis, Steele 1986); a reduce_window would take n additions per element."""
    x = node.inputs[0].spec
    axis = node.attributes[0]
    wide = TensorSpec(x.shape, wide_dtype(x.dtype))
    total = e.operand(node.inputs[0], x.shape, wide.dtype)
    shift = 1
    while shift < x.shape[axis] and x.size:
        total = _plus_shifted(e, total, wide, axis, shift)
        shift *= 2
    e.alias(node, e.convert(total, wide, x.dtype))


def _plus_shifted(e: Emitter, name: str, spec: TensorSpec, axis: int, shift: int) -> str:
    """To each element along an axis the one ``shift`` before it added, where there is one."""
    size = spec.shape[axis]
    first, above, below = (
        _part(e, name, spec, axis, bounds) for bounds in ((0, shift), (shift, size), (0, size - shift))
    )
    total = e.new(f"stablehlo.add {above[0]}, {below[0]} : {tensor_type(above[1])}")
    return joined(e, [first, (total, above[1])], axis)[0]


def _part(e: Emitter, name: str, spec: TensorSpec, axis: int, bounds: tuple[int, int]) -> tuple[str, TensorSpec]:
    """The elements between two places of one axis."""
    return cut(e, name, spec, [bounds if i == axis else (0, dim) for i, dim in enumerate(spec.shape)])
