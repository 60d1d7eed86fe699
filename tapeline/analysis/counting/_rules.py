"""Factors of each op: elementwise ops, shapes, reductions, order."""

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Final

from compile_dag import Node
from lang_core import TensorSpec
from tapeline.analysis.counting._factors import Dims, FactorBuilder, Factors, aligned, single
from tapeline.analysis.counting._grid import Layout

Rule = Callable[[FactorBuilder, Node], tuple[Sequence[Dims], Sequence[Dims]]]

RULES: Final[dict[str, Rule]] = {}
"""Rule by op's name; ops without one are elementwise."""


def factors_of(node: Node, layouts: Sequence[Layout]) -> Factors:
    """Returns the factors of a node without regions, with operands in these layouts."""
    builder = FactorBuilder(layouts)
    operands, results = RULES.get(node.op.name, _elementwise)(builder, node)
    return builder.build(operands, results)


def rule(*names: str) -> Callable[[Rule], Rule]:
    """Registers the rule of some ops."""

    def register(function: Rule) -> Rule:
        RULES.update(dict.fromkeys(names, function))
        return function

    return register


def _elementwise(builder: FactorBuilder, node: Node) -> tuple[Sequence[Dims], Sequence[Dims]]:
    shape = node.results[0].spec.shape
    factors = builder.all(shape)
    return [aligned(factors, value.spec, shape) for value in node.inputs], [single(factors)]


RULES["broadcast"] = _elementwise


@rule("iota", "constant", "parameter")
def _leaf(builder: FactorBuilder, node: Node) -> tuple[Sequence[Dims], Sequence[Dims]]:
    return [], [single([None] * value.spec.ndim) for value in node.results]


@rule("reshape")
def _reshape(builder: FactorBuilder, node: Node) -> tuple[Sequence[Dims], Sequence[Dims]]:
    x, result = node.inputs[0].spec.shape, node.results[0].spec.shape
    bounds = sorted({*_bounds(x), *_bounds(result)})
    steps = {end: builder.new(end // start) for start, end in pairwise(bounds) if end % start == 0}
    if math.prod(x) == 0 or len(steps) != len(bounds) - 1:
        return _reshape_of_parts(builder, x, result)
    return [_between(x, bounds, steps)], [_between(result, bounds, steps)]


def _bounds(shape: Sequence[int]) -> list[int]:
    """Returns the numbers of elements of the last dimension, the last two, ..., with 1 in front."""
    sizes = [1]
    for extent in reversed(shape):
        sizes.append(sizes[-1] * extent)
    return sizes


def _between(shape: Sequence[int], bounds: Sequence[int], steps: dict[int, int]) -> Dims:
    sizes, dims = _bounds(shape), []
    for start, end in pairwise(sizes):
        dims.append(tuple(steps[bound] for bound in reversed(bounds) if start < bound <= end))
    return tuple(reversed(dims))


def _reshape_of_parts(
    builder: FactorBuilder, x: Sequence[int], result: Sequence[int]
) -> tuple[Sequence[Dims], Sequence[Dims]]:
    """Returns factors of the dimensions that a reshape has in common at the front; the others are kept whole."""
    same = 0
    while same < min(len(x), len(result)) and x[same] == result[same]:
        same += 1
    common = builder.all(x[:same])
    return (
        [single([*common, *(builder.keep(extent) for extent in x[same:])])],
        [single([*common, *([None] * (len(result) - same))])],
    )


@rule("transpose")
def _transpose(builder: FactorBuilder, node: Node) -> tuple[Sequence[Dims], Sequence[Dims]]:
    factors = builder.all(node.inputs[0].spec.shape)
    return [single(factors)], [single([factors[axis] for axis in node.attributes[0]])]


@rule("concat")
def _concat(builder: FactorBuilder, node: Node) -> tuple[Sequence[Dims], Sequence[Dims]]:
    axis, shape = node.attributes[0], node.results[0].spec.shape
    factors: list[int | None] = list(builder.all(shape))
    factors[axis] = None
    kept = [builder.keep(value.spec.shape[axis]) for value in node.inputs]
    return [single([*factors[:axis], own, *factors[axis + 1 :]]) for own in kept], [single(factors)]


@rule("slice", "pad", "reverse", "cumsum", "sort")
def _along_kept(builder: FactorBuilder, node: Node) -> tuple[Sequence[Dims], Sequence[Dims]]:
    x, result = node.inputs[0].spec, node.results[0].spec
    changed = _changed_axes(node, x)
    factors = [builder.keep(extent) if i in changed else builder.new(extent) for i, extent in enumerate(x.shape)]
    kept = single([None if i in changed else factor for i, factor in enumerate(factors)])
    assert len(kept) == result.ndim
    return [single(factors), *(() for _ in node.inputs[1:])], [kept] * len(node.results)


def _changed_axes(node: Node, x: TensorSpec) -> set[int]:
    """Returns the axes along which elements change their places."""
    name, attributes = node.op.name, node.attributes
    if name == "reverse":
        return set(attributes[0])
    if name in ("cumsum", "sort"):
        return {attributes[0]}
    return {i for i, (old, new) in enumerate(zip(x.shape, node.results[0].spec.shape, strict=True)) if old != new}


@rule("sum", "prod", "max", "min", "any", "all")
def _reduce(builder: FactorBuilder, node: Node) -> tuple[Sequence[Dims], Sequence[Dims]]:
    axes, keepdims = node.attributes
    return _reduced(builder, node, {*axes}, keepdims)


@rule("argmax", "argmin")
def _argmax(builder: FactorBuilder, node: Node) -> tuple[Sequence[Dims], Sequence[Dims]]:
    axis, keepdims = node.attributes
    return _reduced(builder, node, {axis}, keepdims)


def _reduced(
    builder: FactorBuilder, node: Node, axes: set[int], keepdims: bool
) -> tuple[Sequence[Dims], Sequence[Dims]]:
    shape = node.inputs[0].spec.shape
    factors = [builder.sum(extent) if i in axes else builder.new(extent) for i, extent in enumerate(shape)]
    result: list[int | None] = [
        None if i in axes else factor for i, factor in enumerate(factors) if keepdims or i not in axes
    ]
    return [single(factors)], [single(result)]
