"""Sums of products: the forms that XLA compiles well, and the bits that they ask for.

docs/lab/2026-11-27-what-xla-compiles.md has the figures.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from run_jax.sessions._partitions import CPU

_DOT: Final = "stablehlo.dot_general"
_CONVOLUTION: Final = "stablehlo.convolution"
_RESHAPE: Final = "stablehlo.reshape"
_ROWS: Final = 2  # the fewest that XLA's library for CPUs multiplies


def improve_products(module: Any, platform: str, devices: int) -> None:
    """Writes the products of a module anew if XLA would copy an operand: caches, and on a CPU weights by one row.

    The same numbers are multiplied and added, in XLA's order as before or, of unpacked weights, in that of blocks.

    Args:
        module: a parsed module of StableHLO; its functions are changed.
        platform: kind of the devices, ``cpu``, ``cuda``, ...
        devices: their number.
    """
    with ir.Location.unknown():
        for op in list(_ops(module.operation, (_DOT,))):
            if _shares_caches(op):
                _replace(op, _operands_swapped)
            elif platform == CPU and _is_row_of_bf16(op):
                _replace(op, _row_padded)
            elif platform == CPU and devices == 1 and _is_row_by_blocks(op):  # else all sums of a row are exchanged
                _replace(op, _summed_along_blocks)


def are_in_all_bits(module: Any) -> bool:
    """Returns whether every product of f32 of a parsed module asks for the highest precision of both operands."""
    products = _ops(module.operation, (_DOT, _CONVOLUTION))
    return all(_asks_for_all_bits(op) for op in products if "f32" in map(_dtype, op.operands))


def _asks_for_all_bits(op: Any) -> bool:
    asked = op.attributes.get("precision_config", ())
    return [str(stablehlo.PrecisionAttr(one).value) for one in asked] == ["HIGHEST", "HIGHEST"]


def _ops(op: Any, names: Sequence[str]) -> Iterator[Any]:
    """Yields the ops of these names inside of an op, at any depth."""
    for region in op.regions:
        for block in region.blocks:
            for inner in block.operations:
                if inner.operation.name in names:
                    yield inner
                yield from _ops(inner.operation, names)


def _dtype(value: Any) -> str:
    return str(_element(value))


def _replace(op: Any, written: Callable[[Any], Any]) -> None:
    with ir.InsertionPoint(op):
        op.results[0].replace_all_uses_with(written(op))
    op.erase()


def _dimensions(op: Any) -> Any:
    return stablehlo.DotDimensionNumbers(op.attributes["dot_dimension_numbers"])


def _shares_caches(op: Any) -> bool:
    """Returns whether the right operand is summed over its last axis, in batches: as queries by the keys of a cache."""
    numbers, right = _dimensions(op), ir.RankedTensorType(op.operands[1].type)
    batch, (summed, *others) = list(numbers.rhs_batching_dimensions), list(numbers.rhs_contracting_dimensions)
    return bool(batch) and not others and summed == right.rank - 1 and batch == list(range(len(batch)))


def _operands_swapped(op: Any) -> Any:
    """Writes y by x in place of x by y, and puts the axes of the result back.

    XLA sums over the first axis of a right operand. It transposes the keys' cache for that, before the new key is
    written and again behind it, and copies it in between; the left one it takes as it lies.
    """
    numbers, left = _dimensions(op), ir.RankedTensorType(op.operands[0].type)
    kind = ir.RankedTensorType(op.results[0].type)
    batch = len(numbers.lhs_batching_dimensions)
    of_left = left.rank - batch - len(numbers.lhs_contracting_dimensions)
    order = [*range(batch), *range(batch + of_left, kind.rank), *range(batch, batch + of_left)]
    turned = stablehlo.DotDimensionNumbers.get(
        lhs_batching_dimensions=numbers.rhs_batching_dimensions,
        rhs_batching_dimensions=numbers.lhs_batching_dimensions,
        lhs_contracting_dimensions=numbers.rhs_contracting_dimensions,
        rhs_contracting_dimensions=numbers.lhs_contracting_dimensions,
    )
    swapped = ir.RankedTensorType.get([kind.shape[i] for i in order], kind.element_type)
    product = _product(op, swapped, op.operands[1], op.operands[0], turned)
    back = [order.index(i) for i in range(kind.rank)]
    return stablehlo.transpose(product, ir.DenseI64ArrayAttr.get(back))


def _is_row_of_bf16(op: Any) -> bool:
    """Returns whether this is one row [1, K] of bf16 by a matrix [N, K] or [K, N], with a result in f32."""
    numbers, kinds = _dimensions(op), [ir.RankedTensorType(value.type) for value in (*op.operands, op.results[0])]
    dtypes = [_dtype(value) for value in (*op.operands, op.results[0])]
    plain = [kind.rank for kind in kinds] == [2, 2, 2] and list(numbers.lhs_contracting_dimensions) == [1]
    return plain and dtypes == ["bf16", "bf16", "f32"] and kinds[0].shape[0] == 1


def _row_padded(op: Any) -> Any:
    """Writes a product of two rows, the second one of zeros, and takes the first row of the result.

    XLA's library for CPUs multiplies bf16 as it is from two rows on. Of one row XLA converts the whole matrix to f32,
    in memory that is new in each call.
    """
    x, kind = op.operands[0], ir.RankedTensorType(op.results[0].type)
    rows = stablehlo.pad(x, _zero(_element(x)), _sizes([0, 0]), _sizes([_ROWS - 1, 0]), _sizes([0, 0]))
    wide = ir.RankedTensorType.get([_ROWS, kind.shape[1]], kind.element_type)
    product = _product(op, wide, rows, op.operands[1], op.attributes["dot_dimension_numbers"])
    return stablehlo.slice(product, _sizes([0, 0]), _sizes(kind.shape), _sizes([1, 1]))


def _is_row_by_blocks(op: Any) -> bool:
    """Returns whether this is one row [1, K] of f32 by a matrix [N, K] that was made of blocks [N, B, G]."""
    numbers, kinds = _dimensions(op), [ir.RankedTensorType(value.type) for value in op.operands]
    plain = [kind.rank for kind in kinds] == [2, 2] and kinds[0].shape[0] == 1 and _dtype(op.operands[0]) == "f32"
    if not plain or (list(numbers.lhs_contracting_dimensions), list(numbers.rhs_contracting_dimensions)) != ([1], [1]):
        return False
    blocks = _blocks(op)
    return blocks is not None and ir.RankedTensorType(blocks.type).shape[0] == kinds[1].shape[0]


def _blocks(op: Any) -> Any:
    """Returns the unpacked blocks [N, B, G] with the rows of the right operand; None if it is something else."""
    reshape = op.operands[1].owner
    if not isinstance(reshape, ir.Operation | ir.OpView) or reshape.operation.name != _RESHAPE:
        return None
    blocks = reshape.operands[0]
    return blocks if ir.RankedTensorType(blocks.type).rank == len("NBG") else None


def _summed_along_blocks(op: Any) -> Any:
    """Multiplies and adds block by block: G sums side by side for a row of the weight, then their sum.

    XLA computes such a product while it unpacks. Else it unpacks the whole matrix to memory, in each call.
    """
    x, blocks = op.operands[0], _blocks(op)
    shape = list(ir.RankedTensorType(blocks.type).shape)
    row = stablehlo.reshape(ir.RankedTensorType.get(shape[1:], _element(x)), x)
    rows = stablehlo.broadcast_in_dim(blocks.type, row, _sizes([1, 2]))
    sums = _sum(_sum(stablehlo.multiply(rows, blocks), 1), 1)
    return stablehlo.reshape(op.results[0].type, sums)


def _sum(value: Any, axis: int) -> Any:
    """Adds along an axis."""
    kind = ir.RankedTensorType(value.type)
    shape = [size for place, size in enumerate(kind.shape) if place != axis]
    scalar = ir.RankedTensorType.get([], kind.element_type)
    reduce = stablehlo.ReduceOp(
        [ir.RankedTensorType.get(shape, kind.element_type)], [value], [_zero(kind.element_type)], _sizes([axis])
    )
    block = reduce.regions[0].blocks.append(scalar, scalar)
    with ir.InsertionPoint(block):
        stablehlo.return_([stablehlo.add(*block.arguments)])
    return reduce.results[0]


def _element(value: Any) -> Any:
    return ir.RankedTensorType(value.type).element_type


def _zero(dtype: Any) -> Any:
    scalar = ir.RankedTensorType.get([], dtype)
    return stablehlo.constant(ir.DenseElementsAttr.get_splat(scalar, ir.FloatAttr.get(dtype, 0.0)))


def _product(op: Any, kind: Any, left: Any, right: Any, dimensions: Any) -> Any:
    # The text may leave out either attribute: it is None then, and stays out.
    return stablehlo.dot_general(
        kind, left, right, dimensions, precision_config=op.precision_config, algorithm=op.algorithm
    )


def _sizes(numbers: Sequence[int]) -> Any:
    return ir.DenseI64ArrayAttr.get(list(numbers))
