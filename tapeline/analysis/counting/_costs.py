"""Additions, multiplications and bytes of one op on one device."""

import math
from collections.abc import Sequence
from typing import Final

from compile_dag import Node
from tapeline.analysis.counting._factors import Factors
from tapeline.analysis.counting._grid import DeviceGrid
from tapeline.analysis.counting._spread import Spread

PRODUCTS: Final = frozenset({"dot_general", "conv", "packed_linear", "packed_expert_linear", "cached_attention"})
"""Ops that multiply and add: they read their operands and write their results."""

VIEWS: Final = frozenset({"reshape", "transpose", "broadcast", "slice", "cast", "dequantize", "dynamic_slice"})
"""Ops that are computed where their result is read."""

UPDATES: Final = {"dynamic_update_slice": 1, "scatter": 2, "put": 2}
"""Ops that change their first operand in place, with the place of what they write."""

_PICKING: Final = frozenset({"take", "gather"})
_REDUCING: Final = frozenset({"sum", "prod", "max", "min", "any", "all", "argmax", "argmin", "cumsum", "sort"})


def flops_of(node: Node, factors: Factors, spread: Spread, grid: DeviceGrid) -> int:
    """Returns the additions and multiplications of an op on one device; other functions of a number count as one."""
    sizes = [-(-size // grid.size(cuts)) for size, cuts in zip(factors.sizes, spread.cuts, strict=True)]
    name = node.op.name
    if name == "cached_attention":
        *outer, size, keys, width = sizes[:7]
        return 2 * math.prod(outer) * keys * (size + width)
    if name == "conv":
        spec, (inputs, _) = node.results[0].spec, factors.operands[1][-2:]
        inner = math.prod(sizes[factor] for factor in inputs) if inputs else node.inputs[1].spec.shape[-2]
        made = grid.local_bytes(spec, spread.results[0]) // spec.dtype.itemsize
        return 2 * made * math.prod(node.inputs[1].spec.shape[:-2]) * inner
    if name in PRODUCTS:
        return 2 * math.prod(sizes[factor] for factor in _loops(factors))
    if name in VIEWS or name in UPDATES or name in _PICKING or not node.inputs:
        return 0
    if not node.inputs[0].spec.dtype.is_floating:
        return 0
    if name in _REDUCING:
        spec, layout = node.inputs[0].spec, spread.operands[0]
    else:
        spec, layout = node.results[0].spec, spread.results[0]
    return grid.local_bytes(spec, layout) // spec.dtype.itemsize


def _loops(factors: Factors) -> set[int]:
    """Returns the factors of the first operand and of the results: not the experts that are not chosen."""
    return {factor for dims in (*factors.operands[0], *factors.results[0]) for factor in dims}


def bytes_of(node: Node, spread: Spread, grid: DeviceGrid, sources: Sequence[int]) -> int:
    """Returns the bytes that an op reads and writes on one device.

    Args:
        node: the op.
        spread: how it is spread.
        grid: the devices.
        sources: bytes of the source of each operand, without products in between: packed weights of unpacked ones.
    """
    name = node.op.name
    made = sum(grid.local_bytes(value.spec, layout) for value, layout in zip(node.results, spread.results, strict=True))
    if name == "packed_expert_linear":
        groups, experts = node.inputs[1].spec.shape[0], node.inputs[2].spec.shape[0]
        return sources[0] + sources[2] * min(groups, experts) // experts + made
    if name in PRODUCTS:
        return sum(sources) + made
    if name in _PICKING:
        return 2 * made
    if name in UPDATES:
        place = UPDATES[name]
        return 2 * grid.local_bytes(node.inputs[place].spec, spread.operands[place])
    return 0
