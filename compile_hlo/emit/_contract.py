"""Emission of sums of products."""

import math

from compile_dag import Node, Value
from compile_hlo.emit._builder import Builder, SsaValue
from compile_hlo.emit._calls import call_helper
from compile_hlo.emit._emitter import Emitter, emits
from compile_hlo.emit._helpers import Helper
from compile_hlo.emit._overrides import overridable
from compile_hlo.emit._types import integers, tensor_type
from lang_core import DType, TensorSpec, bf16, f16, f32

Axes = tuple[tuple[int, ...], ...]


@emits("dot_general")
def _dot_general(e: Emitter, node: Node) -> None:
    e.alias(node, contracted(e, node))


@overridable("dot_general")
def contracted(e: Emitter, node: Node) -> str:
    """Writes a node's sum of products; f16 and bf16 products accumulate in f32 and are rounded once."""
    x, y = node.inputs
    result = node.results[0].spec
    *axes, dtype = node.attributes
    if _is_linear(e, x, y, node):
        return _linear(e, x, y, result)
    wide = TensorSpec(result.shape, dtype.accumulation)
    left, right = factors(e, x, y, dtype)
    return e.convert(product(e, left, right, tuple(axes), wide), wide, dtype)


@overridable("factors")
def factors(e: Emitter, x: Value, y: Value, dtype: DType) -> tuple[SsaValue, SsaValue]:
    """Returns the operands of a sum of products in ``dtype``."""
    del dtype
    return e.value(x), e.value(y)


def product(e: Builder, x: SsaValue, y: SsaValue, axes: Axes, result: TensorSpec) -> str:
    """Writes a dot_general; of f32 in the highest precision.

    By default StableHLO leaves the precision of f32 to its consumer: XLA takes TF32 on GPUs and bf16 on TPUs.

    Args:
        e: builder.
        x: left operand.
        y: right operand.
        axes: x's and y's contracted axes, x's and y's batch axes.
        result: spec.
    """
    x_contract, y_contract, x_batch, y_batch = axes
    batching = f"batching_dims = {integers(x_batch)} x {integers(y_batch)}, " if x_batch else ""
    precision = ", precision = [HIGHEST, HIGHEST]" if wants_precision(x, y) else ""
    return e.new(
        f"stablehlo.dot_general {x.name}, {y.name}, {batching}"
        f"contracting_dims = {integers(x_contract)} x {integers(y_contract)}{precision} : ({x.kind}, {y.kind}) -> "
        f"{tensor_type(result)}"
    )


def wants_precision(x: SsaValue, y: SsaValue) -> bool:
    """Returns whether products of two operands lose bits if a device multiplies f32 with fewer."""
    return f32 in (x.spec.dtype, y.spec.dtype)


def _is_linear(e: Emitter, x: Value, y: Value, node: Node) -> bool:
    """Returns whether this is ``x [.., K] @ y [N, K].T``, for which a target may have a kernel.

    In f32 compilers do well alone, but for the order of sums, which they choose by the number of rows.
    """
    *axes, dtype = node.attributes
    plain = tuple(axes) == ((x.spec.ndim - 1,), (1,), (), ()) and y.spec.ndim == 2
    dtypes = (bf16, f16, f32) if e.helpers.batch_invariant else (bf16, f16)
    return plain and x.dtype is y.dtype and x.dtype in dtypes and dtype in (x.dtype, f32)


def _linear(e: Emitter, x: Value, y: Value, result: TensorSpec) -> str:
    """Calls a helper function, with x as a matrix."""
    rows, (outputs, columns) = math.prod(x.shape[:-1]), y.shape
    flat, matrix = TensorSpec((rows, columns), x.dtype), TensorSpec((rows, outputs), result.dtype)
    given = [SsaValue(e.reshape(e.name(x), x.spec, flat.shape), flat), e.value(y)]
    case = f"{x.dtype.name}.{result.dtype.name}.{rows}x{outputs}x{columns}"
    wide = TensorSpec(matrix.shape, f32)

    def body(inner: Emitter, left: SsaValue, right: SsaValue) -> list[str]:
        name = product(inner, left, right, ((1,), (1,), (), ()), wide)
        return [inner.convert(name, wide, matrix.dtype)]

    return e.reshape(call_helper(e, Helper("linear", case), given, (matrix,), body), matrix, result.shape)
