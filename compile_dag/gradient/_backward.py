"""The backward pass: from the gradients of results to those of their operands."""

from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from itertools import groupby
from typing import Any

from compile_dag._graph import regions_of
from compile_dag._node import Node, Value
from compile_dag.gradient._rules import COMPOSITE_RULES, NOT_DIFFERENTIABLE, REFUSED, RULES, ForwardCall, Rule
from compile_dag.gradient._units import Unit, units_of
from lang_core import ExecutionContext, GraphError, Tensor, near_names


class Cotangents:
    """Gradient of each value so far, by the value's number: a sum that grows as its users are passed."""

    def __init__(self, ctx: ExecutionContext) -> None:
        self._ctx = ctx
        self._found: dict[int, Tensor] = {}

    def add(self, value: Value, gradient: Tensor) -> None:
        """Adds the contribution of one use, fitted to the value's spec."""
        gradient = fitted(self._ctx, gradient, value)
        before = self._found.get(value.number)
        self._found[value.number] = gradient if before is None else self._ctx.ops.add(before, gradient)

    def get(self, value: Value) -> Tensor | None:
        """Returns the sum so far; None if nothing contributed."""
        return self._found.get(value.number)

    def pop(self, value: Value) -> Tensor | None:
        """Returns the sum and drops it."""
        return self._found.pop(value.number, None)


def fitted(ctx: ExecutionContext, gradient: Tensor, value: Tensor) -> Tensor:
    """Returns the gradient summed over the axes along which the value was broadcast, in the value's dtype."""
    shape, ops = value.shape, ctx.ops
    if gradient.shape != shape:
        lead = gradient.ndim - len(shape)
        axes = [i for i, dim in enumerate(gradient.shape) if i < lead or (shape[i - lead] == 1 and dim != 1)]
        gradient = ops.reshape(ops.sum(gradient, axes), shape)
    return ops.cast(gradient, value.dtype)


def active_values(nodes: Iterable[Node], wanted: Iterable[Value]) -> set[int]:
    """Returns the numbers of the floating values that depend on the wanted ones by differentiable ops, these included.

    Refused ops count too: the way back meets them if the result depends on them.
    """
    active = {value.number for value in wanted}
    constant = NOT_DIFFERENTIABLE.keys() - REFUSED
    for node in nodes:
        if node.op.name not in constant and any(value.number in active for value in node.inputs):
            active.update(value.number for value in node.results if value.dtype.is_floating)
    return active


def backward(
    ctx: ExecutionContext,
    nodes: Sequence[Node],
    known: dict[int, Tensor],
    seeds: Sequence[tuple[Value, Tensor]],
    wanted: Sequence[Value],
    constants: dict[int, Any],
    blocks: bool = True,
) -> list[Tensor | None]:
    """Goes through the nodes from the last to the first.

    The backward ops of a block ``b`` are in a block ``b.backward``, under the nodes' own module paths
    and source lines.

    Args:
        ctx: context in which the gradient is computed or recorded.
        nodes: nodes that were run forward in ``ctx``.
        known: tensors of ``ctx`` that the nodes' values stand for, by number.
        seeds: values, and the gradient of the loss with respect to each.
        wanted: values to differentiate with respect to.
        constants: arrays of constants from around the nodes, by the value's number.
        blocks: True to open blocks; not in the function of a loop or branch.

    Returns:
        The gradients; None if nothing depends on a value.

    Raises:
        GraphError: an op on the way lacks a gradient rule, or is refused.
    """
    active = active_values(nodes, wanted)
    constants = constants | {n.results[0].number: n.attributes[0].array for n in nodes if n.op.name == "constant"}
    cotangents = Cotangents(ctx)
    keep = {value.number for value in wanted}
    for value, gradient in seeds:
        if value.number in active:
            cotangents.add(value, gradient)
    units = units_of(nodes, [*(value for value, _ in seeds), *wanted], active)
    path, line = ctx.module_path, ctx.source_line
    try:
        for (block, _), members in groupby(reversed(units), lambda unit: unit.node.stretch):
            differentiated = [unit for unit in members if any(value.number in active for value in unit.results)]
            with ctx.block(f"{block}.backward") if blocks and block and differentiated else nullcontext():
                for unit in differentiated:
                    ctx.module_path, ctx.source_line = unit.node.path, unit.node.line
                    _unit(ctx, unit, known, cotangents, active, keep, constants)
    finally:
        ctx.module_path, ctx.source_line = path, line
    return [cotangents.get(value) for value in wanted]


def _unit(
    ctx: ExecutionContext,
    unit: Unit,
    known: dict[int, Tensor],
    totals: Cotangents,
    active: set[int],
    keep: set[int],
    constants: dict[int, Any],
) -> None:
    cotangents = [totals.get(value) if value.number in keep else totals.pop(value) for value in unit.results]
    if all(cotangent is None for cotangent in cotangents) or not any(value.number in active for value in unit.inputs):
        return
    operands = unit.node.inputs if unit.call is None else unit.call.inputs
    node = unit.node
    forward = ForwardCall(
        ctx,
        node.op.name if unit.call is None else unit.call.name,
        tuple(known[operand.number] if isinstance(operand, Value) else operand for operand in operands),
        tuple(known[value.number] for value in unit.results),
        node.attributes if unit.call is None else unit.call.attributes,
        tuple(isinstance(operand, Value) and operand.number in active for operand in operands),
        operands,
        f"at {node.path or 'the root'}, {node.line}",
        constants,
    )
    thunks = (_rule_of(node, forward) if unit.call is None else COMPOSITE_RULES[unit.call.name])(forward, *cotangents)
    if len(thunks) != len(operands):
        raise GraphError(
            f"the gradient rule of {forward.name!r} returned {len(thunks)} functions for {len(operands)} inputs "
            f"({forward.where}): return one for each, None for a zero gradient"
        )
    for value, wants, thunk in zip(operands, forward.wanted, thunks, strict=True):
        gradient = thunk() if wants and thunk is not None else None
        if gradient is not None:
            totals.add(value, gradient)


def _rule_of(node: Node, forward: ForwardCall) -> Rule:
    rule = RULES.get(node.op.name)
    if node.op.name in REFUSED:
        raise GraphError(
            f"no gradient goes through the op {node.op.name!r} ({forward.where}): {NOT_DIFFERENTIABLE[node.op.name]}"
        )
    if rule is None:
        inside = " and regions" if any(True for _ in regions_of(node)) else ""
        raise GraphError(
            f"the op {node.op.name!r}{inside} ({forward.where}) has no gradient rule: register one with "
            f"@gradient_of({node.op.name!r}), or say why there is none with not_differentiable"
            f"{near_names(node.op.name, RULES)}"
        )
    return rule
