"""Dataflow: which given buffers a value may be, and the ops' uses of those buffers.

An *origin* of a value is a buffer that was given from outside and that the value may be. The origin is certain if the
ops in between only rename it (a reshape, an update, the carried value of a loop), and possible if the compiler may find
out that their result is the operand itself: IREE turns ``x * 1``, ``x - 0``, ``-(-x)``, ``max(x, x)`` and a
concatenation of all slices of x into x. It is old if the value may be the initial contents of the buffer, and not an
update of them.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from compile_dag import ComputeGraph, Node, Value
from compile_hlo.directions._direction import WrittenAt
from compile_hlo.directions._events import (
    NONE,
    Event,
    EventKind,
    Events,
    Origin,
    Origins,
    add_use,
    add_write,
    seen_from_root,
)
from lang_core import TensorSpec

OriginsOf = Callable[[Value], Origins]

# Ops whose result is no operand, whatever the operands are.
_FRESH: Final = frozenset(
    "argmax argmin conv cos dot_general erf exp expm1 iota log log1p logistic rsqrt sin sqrt tanh".split()
)
# Results of these count as given from outside: a weight is an argument of the kernel that reads it.
GIVEN: Final = frozenset(("constant", "parameter"))
_SURE: Final = Origin.CERTAIN | Origin.ALWAYS
# Ops that move elements: a chain of them may give back what it began with, whatever the sizes in between.
MOVES: Final = frozenset("broadcast cast concat dynamic_slice gather pad reshape reverse slice take transpose".split())


def flow_of(nodes: Iterable[Node], outside: OriginsOf, events: Events) -> dict[int, Origins]:
    """Follows buffers through nodes.

    Args:
        nodes: nodes in order.
        outside: function that gives the origins of values that the nodes do not make.
        events: uses of the buffers; the nodes' events are added.

    Returns:
        The origins of the nodes' results by the value's number; a result that is not there has none.
    """
    known: dict[int, Origins] = {}
    made: set[int] = set()

    def origins(value: Value) -> Origins:
        return known.get(value.number, NONE) if value.number in made else outside(value)

    for node in nodes:
        if node.op.name in GIVEN:
            continue
        made.update([value.number for value in node.results])
        if node.op.name in _FRESH:
            _add_uses(node, origins, (), events)
            continue
        results = _results(node, origins, events)
        _add_uses(node, origins, results, events)
        for value, result in zip(node.results, results, strict=False):
            if result:
                known[value.number] = result
    return known


def origins_of(node: Node, origins: OriginsOf, events: Events) -> Sequence[Origins]:
    """Returns the origins of a node's first results, and adds its events; further results lack origins."""
    if node.op.name in GIVEN or not any(origins(value) for value in node.inputs):
        return ()
    results = () if node.op.name in _FRESH else _results(node, origins, events)
    _add_uses(node, origins, results, events)
    return results


def _add_uses(node: Node, origins: OriginsOf, results: Sequence[Origins], events: Events) -> None:
    """Adds reads, and updates of updated values."""
    passed_on = results[0] if results else NONE
    for index, value in enumerate(node.inputs):
        for root, how in origins(value).items():
            if Origin.ALWAYS not in passed_on.get(root, Origin.POSSIBLE):
                kind = EventKind.READ_OLD
            elif index == 0 and node.op.name in ("dynamic_update_slice", "put"):
                kind = EventKind.UPDATED_OLD
            else:
                continue
            for kind_of_root in seen_from_root(kind, how):
                event = Event(kind_of_root, root)
                if event not in events or kind_of_root is EventKind.UPDATED_OLD:
                    add_use(events, event, WrittenAt(node.op.name, node.path, node.line, False))


def made_by(nodes: Iterable[Node]) -> set[int]:
    """Returns the numbers of the values that nodes make; constants and parameters count as given."""
    return {value.number for node in nodes if node.op.name not in GIVEN for value in node.results}


def _results(node: Node, origins: OriginsOf, events: Events) -> Sequence[Origins]:
    """Returns the origins of the first results; the others have none."""
    rule = _RULES.get(node.op.name)
    if rule is not None:
        return rule(node, origins, events)
    x, result = node.inputs[0], node.results[0]
    if is_same(node):
        return (origins(x) if node.op.name in ("reshape", "cast") else _without(Origin.ALWAYS, origins(x)),)
    if node.op.name in MOVES:
        return (_merged([_possible(origins(value)) for value in (node.inputs if node.op.name == "concat" else (x,))]),)
    same = [value for value in node.inputs if _may_be(value.spec, result.spec)]
    return (_merged([_possible(origins(value)) for value in same]),)


def _may_be(x: TensorSpec, result: TensorSpec) -> bool:
    return x.size == result.size and x.dtype is result.dtype


def is_same(node: Node) -> bool:
    """Returns whether an op only renames its first operand."""
    x, result = node.inputs[0].spec, node.results[0].spec
    name = node.op.name
    if name == "reshape":
        return True
    if name in ("broadcast", "slice", "dynamic_slice"):
        return x.size == result.size
    if name == "cast":
        return x.dtype is result.dtype
    if name == "concat":
        return len(node.inputs) == 1
    if name == "reverse":
        return all(x.shape[axis] == 1 for axis in node.attributes[0])
    if name == "transpose":
        moved = [axis for axis in node.attributes[0] if x.shape[axis] != 1]
        return moved == sorted(moved)
    return False


def _update(node: Node, origins: OriginsOf, events: Events) -> Sequence[Origins]:
    """Handles ``dynamic_update_slice``, ``put`` and ``scatter``: they write into their first operand, the result."""
    target = origins(node.inputs[0])
    if node.op.name == "dynamic_update_slice" and node.inputs[1].spec == node.inputs[0].spec:
        return (origins(node.inputs[1]),)  # all of it: nothing is written, the result is the update
    _write(events, target, node)
    # A scatter is emitted with a copy (see scatter_outside of compile_hlo/quirks).
    copied = Origin.ALWAYS if node.op.name == "scatter" else Origin.POSSIBLE
    return (_without(Origin.OLD | copied, target),)


def _sort(node: Node, origins: OriginsOf, events: Events) -> Sequence[Origins]:
    """Handles ``sort``: IREE sorts an operand in its own place if it is not used later."""
    target = _possible(origins(node.inputs[0]))
    _write(events, target, node)
    return (_without(Origin.OLD, target),)


def _cond(node: Node, origins: OriginsOf, events: Events) -> Sequence[Origins]:
    """Handles a branch: a result may come from either function."""
    branches = [_region(graph, (), origins, events) for graph in node.attributes]
    return [_without(Origin.ALWAYS, _merged(parts)) for parts in zip(*branches, strict=True)]


def _while(node: Node, origins: OriginsOf, events: Events) -> Sequence[Origins]:
    """Handles a loop: a carried value may be, after any number of rounds, its start or a result of the body."""
    cond, body, carried = node.attributes
    inside: Events = {}
    indices = {value.number: index for index, value in enumerate(body.inputs.values())}
    given: list[Origins] = [{number: Origin.GIVEN} for number in indices]
    made = _region(body, given, origins, inside)
    _region(cond, given, origins, inside)
    known = [dict(origins(value)) for value in node.inputs[:carried]]
    changed = True
    while changed:
        changed = False
        for index, result in enumerate(made):
            merged = _merged([known[index], _resolved(result, indices, known)])
            changed |= merged != known[index]
            known[index] = dict(merged)
    for event, place in inside.items():
        if event.kind is not EventKind.WRITTEN:
            continue  # the loop itself reads it
        roots = known[indices[event.root]] if event.root in indices else {event.root: Origin.GIVEN}
        for root, how in roots.items():
            add_write(events, root, place, place.certain and Origin.CERTAIN in how)
    return [_without(Origin.ALWAYS, result) for result in known]


def _region(graph: ComputeGraph, given: Sequence[Origins], origins: OriginsOf, events: Events) -> list[Origins]:
    """Returns the origins of a region's outputs, given those of its inputs."""
    inputs = {value.number: known for value, known in zip(graph.inputs.values(), given, strict=True)}

    def outside(value: Value) -> Origins:
        known = inputs.get(value.number)
        return origins(value) if known is None else known

    made = made_by(graph.nodes)
    results = flow_of(graph.nodes, outside, events)
    return [
        results.get(value.number, NONE) if value.number in made else outside(value) for value in graph.outputs.values()
    ]


def _resolved(origins: Origins, indices: Mapping[int, int], carried: Sequence[Origins]) -> Origins:
    """Returns origins with those of the carried values in place of the carried values."""
    resolved: dict[int, Origin] = {}
    for root, how in origins.items():
        add_origins(resolved, how, carried[indices[root]] if root in indices else {root: Origin.GIVEN})
    return resolved


def _merged(parts: Sequence[Origins]) -> Origins:
    if len(parts) == 1:
        return parts[0]
    merged: dict[int, Origin] = {}
    for part in parts:
        add_origins(merged, Origin.GIVEN, part)
    return merged


def add_origins(total: dict[int, Origin], how: Origin, origins: Origins) -> None:
    """Adds the origins of a value to those of another value that is the first one in some way."""
    for root, also in origins.items():
        both = also if how is Origin.GIVEN else how & also
        total[root] = total[root] | both if root in total else both


def _without(flag: Origin, origins: Origins) -> Origins:
    kept = Origin.GIVEN ^ flag
    return {root: how & kept for root, how in origins.items()} if origins else NONE


def _possible(origins: Origins) -> Origins:
    return _without(_SURE, origins)


def _write(events: Events, target: Origins, node: Node) -> None:
    for root, how in target.items():
        certain = Origin.CERTAIN in how
        add_write(events, root, WrittenAt(node.op.name, node.path, node.line, certain), certain)


_RULES: Final[dict[str, Callable[[Node, OriginsOf, Events], Sequence[Origins]]]] = {
    "dynamic_update_slice": _update,
    "put": _update,
    "scatter": _update,
    "sort": _sort,
    "while": _while,
    "cond": _cond,
}
