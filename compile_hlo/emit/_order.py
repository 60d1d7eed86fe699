"""Emission of ops about order: sort, argmax, argmin; and of cumsum, which runs along an axis too."""

from compile_dag import Node
from compile_hlo.emit._control import bind_results
from compile_hlo.emit._emitter import Emitter, emits
from compile_hlo.emit._reduce import reduced
from compile_hlo.emit._types import integers, tensor_type
from lang_core import TensorSpec, bool_, f32, i32


@emits("sort")
def _sort(e: Emitter, node: Node) -> None:
    x = node.inputs[0].spec
    axis, descending = node.attributes
    indices = TensorSpec(x.shape, i32)
    operand = e.name(node.inputs[0])
    order = e.new(f"stablehlo.iota dim = {axis} : {tensor_type(indices)}")
    x_type, scalar, index = tensor_type(x), TensorSpec((), x.dtype), tensor_type(TensorSpec((), i32))
    e.line(
        f'{bind_results(e, node)} = "stablehlo.sort"({operand}, {order}) '
        f"<{{dimension = {axis} : i64, is_stable = true}}> ({{"
    )
    a, b, unused = e.fresh(), e.fresh(), (e.fresh(), e.fresh())
    kind = tensor_type(scalar)
    e.line(f"^bb0({a}: {kind}, {b}: {kind}, {unused[0]}: {index}, {unused[1]}: {index}):")
    first = _before(e, b, a, scalar) if descending else _before(e, a, b, scalar)
    e.line(f"  stablehlo.return {first} : tensor<i1>")
    e.line(f"}}) : ({x_type}, {tensor_type(indices)}) -> ({x_type}, {tensor_type(indices)})")


def _before(e: Emitter, a: str, b: str, spec: TensorSpec) -> str:
    """Whether a is less than b, NaN being the largest number."""
    less = e.compare("LT", a, b, spec)
    if not spec.dtype.is_floating:
        return less
    number, nan = e.compare("EQ", a, a, spec), e.compare("NE", b, b, spec)
    only_b = e.new(f"stablehlo.and {number}, {nan} : tensor<i1>")
    return e.new(f"stablehlo.or {less}, {only_b} : tensor<i1>")


@emits("argmax", "argmin")
def _arg_reduce(e: Emitter, node: Node) -> None:
    """The first index of the reduced value, in two plain reductions, which every device vectorises."""
    x, result = node.inputs[0].spec, node.results[0].spec
    axis, _ = node.attributes
    wide = TensorSpec(x.shape, f32) if x.dtype.itemsize == 2 else x
    operand = e.operand(node.inputs[0], x.shape, wide.dtype)
    best = reduced(e, node.op.name.removeprefix("arg"), operand, wide, (axis,))
    dims = tuple(i for i in range(x.ndim) if i != axis)
    source = tensor_type(TensorSpec(tuple(x.shape[i] for i in dims), wide.dtype))
    best = e.new(f"stablehlo.broadcast_in_dim {best}, dims = {integers(dims)} : ({source}) -> {tensor_type(wide)}")
    found = e.compare("EQ", operand, best, wide)
    if wide.dtype.is_floating:  # where there is a NaN, the reduced value is NaN, which equals nothing
        nan = e.compare("NE", operand, operand, wide)
        found = e.new(f"stablehlo.or {found}, {nan} : {tensor_type(TensorSpec(x.shape, bool_))}")
    indices = TensorSpec(x.shape, i32)
    order = e.new(f"stablehlo.iota dim = {axis} : {tensor_type(indices)}")
    last = e.constant(i32.numpy.type(x.shape[axis] - 1), indices)
    order = e.new(
        f"stablehlo.select {found}, {order}, {last} : {tensor_type(TensorSpec(x.shape, bool_))}, {tensor_type(indices)}"
    )
    first = reduced(e, "min", order, indices, (axis,))
    e.alias(node, e.reshape(first, TensorSpec(tuple(x.shape[i] for i in dims), i32), result.shape))


@emits("cumsum")
def _cumsum(e: Emitter, node: Node) -> None:
    """log2(n) shifted additions (Hillis, Steele 1986); a reduce_window would take n additions per element."""
    x = node.inputs[0].spec
    axis = node.attributes[0]
    wide = TensorSpec(x.shape, f32) if x.dtype.itemsize == 2 else x
    total = e.operand(node.inputs[0], x.shape, wide.dtype)
    shift = 1
    while shift < x.shape[axis] and x.size:
        total = e.new(f"stablehlo.add {total}, {_shifted(e, total, wide, axis, shift)} : {tensor_type(wide)}")
        shift *= 2
    e.alias(node, e.convert(total, wide, x.dtype))


def _shifted(e: Emitter, name: str, spec: TensorSpec, axis: int, shift: int) -> str:
    """The elements moved up along an axis; zeros come in (-0.0, to which every float can be added unchanged)."""
    kept = TensorSpec(tuple(d - shift if i == axis else d for i, d in enumerate(spec.shape)), spec.dtype)
    ranges = ", ".join([f"0:{dim}" for dim in kept.shape])
    name = e.new(f"stablehlo.slice {name} [{ranges}] : ({tensor_type(spec)}) -> {tensor_type(kept)}")
    zero = e.scalar(-0.0 if spec.dtype.is_floating else 0, spec.dtype)
    low = integers(tuple(shift if i == axis else 0 for i in range(spec.ndim)))
    none = integers((0,) * spec.ndim)
    return e.new(
        f"stablehlo.pad {name}, {zero}, low = {low}, high = {none}, interior = {none} : "
        f"({tensor_type(kept)}, {tensor_type(TensorSpec((), spec.dtype))}) -> {tensor_type(spec)}"
    )
