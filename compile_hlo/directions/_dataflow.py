"""Dataflow: which given buffers a value may be, and which of them ops write in place.

An *origin* of a value is a buffer that was given from outside and that the value may be. The origin is certain where
the ops in between only rename it (a reshape, an update, the carried value of a loop), and possible where the compiler
may find out that what they compute is the operand itself: IREE turns ``x * 1``, ``x - 0``, ``-(-x)``, ``max(x, x)``
and a concatenation of all slices of x into x. It is old where the value may be what the buffer held at first, and not
what an update made of it.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from compile_dag import ComputeGraph, Node, Value
from compile_hlo.directions._direction import WrittenAt
from compile_hlo.directions._events import (
    READ_OLD,
    UPDATED,
    Origin,
    Origins,
    Written,
    events,
    note,
    note_event,
)
from lang_core import TensorSpec

OriginsOf = Callable[[Value], Origins]

NONE: Final[Origins] = {}

# Ops whose result is no operand, whatever the operands are.
_FRESH: Final = frozenset(
    "argmax argmin conv cos dot_general erf exp expm1 iota log log1p logistic rsqrt sin sqrt tanh".split()
)
# What these make is given from outside: a weight is an argument of the kernel that reads it.
GIVEN: Final = frozenset(("constant", "parameter"))
# Ops that move elements: a chain of them may give back what it began with, whatever the sizes in between.
_MOVES: Final = frozenset("broadcast cast concat dynamic_slice gather pad reshape reverse slice take transpose".split())


def flow_of(nodes: Iterable[Node], outside: OriginsOf, written: Written) -> dict[int, Origins]:
    """Follows buffers through nodes.

    Args:
        nodes: in order.
        outside: the origins of values that the nodes do not make.
        written: takes what is written; a certain write replaces a possible one, and else the first one stays.

    Returns:
        The origins of the nodes' results, by ``id``; a result that is not there has none.
    """
    found: dict[int, Origins] = {}
    made: set[int] = set()

    def origins(value: Value) -> Origins:
        key = id(value)
        return found.get(key, NONE) if key in made else outside(value)

    for node in nodes:
        if node.op.name in GIVEN:
            continue
        made.update([id(value) for value in node.results])
        if node.op.name in _FRESH:
            _note_uses(node, origins, (), written)
            continue
        results = _results(node, origins, written)
        _note_uses(node, origins, results, written)
        for value, each in zip(node.results, results, strict=False):
            if each:
                found[id(value)] = each
    return found


def origins_of(node: Node, origins: OriginsOf, written: Written) -> Sequence[Origins]:
    """The origins of a node's first results; the others have none. What it writes goes to ``written``."""
    if node.op.name in GIVEN or not any(origins(value) for value in node.inputs):
        return ()
    results = () if node.op.name in _FRESH else _results(node, origins, written)
    _note_uses(node, origins, results, written)
    return results


def _note_uses(node: Node, origins: OriginsOf, results: Sequence[Origins], written: Written) -> None:
    """Notes reads, and updates of what was updated before."""
    goes_on = results[0] if results else NONE
    for number, value in enumerate(node.inputs):
        for root, how in origins(value).items():
            if Origin.ALWAYS not in goes_on.get(root, Origin.POSSIBLE):
                kinds = events(READ_OLD, how)
            elif number == 0 and node.op.name in ("dynamic_update_slice", "put"):
                kinds = events(UPDATED, how)
            else:
                continue
            for kind in kinds:
                note_event(written, kind, root, WrittenAt(node.op.name, node.path, node.line, False))


def made_by(nodes: Iterable[Node]) -> set[int]:
    """The values, by ``id``, that nodes make rather than are given."""
    return {id(value) for node in nodes if node.op.name not in GIVEN for value in node.results}


def _results(node: Node, origins: OriginsOf, written: Written) -> Sequence[Origins]:
    """The origins of the first results; the others have none."""
    rule = _RULES.get(node.op.name)
    if rule is not None:
        return rule(node, origins, written)
    x, result = node.inputs[0], node.results[0]
    if _is_same(node):
        return (origins(x) if node.op.name in ("reshape", "cast") else _without(Origin.ALWAYS, origins(x)),)
    if node.op.name in _MOVES:
        return (_merged([_possible(origins(value)) for value in (node.inputs if node.op.name == "concat" else (x,))]),)
    same = [value for value in node.inputs if _may_be(value.spec, result.spec)]
    return (_merged([_possible(origins(value)) for value in same]),)


def _may_be(x: TensorSpec, result: TensorSpec) -> bool:
    return x.size == result.size and x.dtype is result.dtype


def _is_same(node: Node) -> bool:
    """Whether an op only renames its first operand."""
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


def _update(node: Node, origins: OriginsOf, written: Written) -> Sequence[Origins]:
    """``dynamic_update_slice``, ``put`` and ``scatter`` write into their first operand, and that is the result."""
    target = origins(node.inputs[0])
    if node.op.name == "dynamic_update_slice" and node.inputs[1].spec == node.inputs[0].spec:
        return (origins(node.inputs[1]),)  # all of it: nothing is written, the result is the update
    _write(written, target, node)
    # A scatter is emitted with a copy (see compile_hlo/emit/_indexing.py).
    copied = Origin.ALWAYS if node.op.name == "scatter" else Origin.POSSIBLE
    return (_without(Origin.OLD | copied, target),)


def _sort(node: Node, origins: OriginsOf, written: Written) -> Sequence[Origins]:
    """IREE sorts an operand in its own place where it is not used later."""
    target = _possible(origins(node.inputs[0]))
    _write(written, target, node)
    return (_without(Origin.OLD, target),)


def _cond(node: Node, origins: OriginsOf, written: Written) -> Sequence[Origins]:
    branches = [_region(graph, (), origins, written) for graph in node.attributes]
    return [_without(Origin.ALWAYS, _merged(each)) for each in zip(*branches, strict=True)]


def _while(node: Node, origins: OriginsOf, written: Written) -> Sequence[Origins]:
    """What a loop carries may be, after any number of rounds, what it began with or what the body made of it."""
    cond, body, carried = node.attributes
    inside: Written = {}
    symbols = {id(value): number for number, value in enumerate(body.inputs.values())}
    given: list[Origins] = [{symbol: Origin.GIVEN} for symbol in symbols]
    made = _region(body, given, origins, inside)
    _region(cond, given, origins, inside)
    found = [dict(origins(value)) for value in node.inputs[:carried]]
    changed = True
    while changed:
        changed = False
        for number, each in enumerate(made):
            new = _merged([found[number], _resolved(each, symbols, found)])
            changed |= new != found[number]
            found[number] = dict(new)
    for root, place in inside.items():
        if root < 0:
            continue  # the loop itself reads it
        known = found[symbols[root]] if root in symbols else {root: Origin.GIVEN}
        for origin, how in known.items():
            note(written, origin, place, place.certain and Origin.CERTAIN in how)
    return [_without(Origin.ALWAYS, each) for each in found]


def _region(graph: ComputeGraph, given: Sequence[Origins], origins: OriginsOf, written: Written) -> list[Origins]:
    """The origins of a region's outputs, for those of its inputs."""
    inputs = {id(value): each for value, each in zip(graph.inputs.values(), given, strict=True)}

    def outside(value: Value) -> Origins:
        found = inputs.get(id(value))
        return origins(value) if found is None else found

    made = made_by(graph.nodes)
    found = flow_of(graph.nodes, outside, written)
    return [found.get(id(value), NONE) if id(value) in made else outside(value) for value in graph.outputs.values()]


def _resolved(origins: Origins, symbols: Mapping[int, int], found: Sequence[Origins]) -> Origins:
    """With the carried values' origins in place of the carried values."""
    every: dict[int, Origin] = {}
    for root, how in origins.items():
        known = found[symbols[root]] if root in symbols else {root: Origin.GIVEN}
        follow(every, how, known)
    return every


def _merged(parts: Sequence[Origins]) -> Origins:
    if len(parts) == 1:
        return parts[0]
    every: dict[int, Origin] = {}
    for part in parts:
        follow(every, Origin.GIVEN, part)
    return every


def follow(every: dict[int, Origin], how: Origin, origins: Origins) -> None:
    """Adds the origins of a value to those of one that is that value in some way."""
    for root, also in origins.items():
        every[root] = every.get(root, Origin.POSSIBLE) | (how & also)


def _without(flag: Origin, origins: Origins) -> Origins:
    return {root: how & ~flag for root, how in origins.items()} if origins else NONE


def _possible(origins: Origins) -> Origins:
    return _without(Origin.CERTAIN | Origin.ALWAYS, origins)


def _write(written: Written, target: Origins, node: Node) -> None:
    for root, how in target.items():
        certain = Origin.CERTAIN in how
        note(written, root, WrittenAt(node.op.name, node.path, node.line, certain), certain)


_RULES: Final[dict[str, Callable[[Node, OriginsOf, Written], Sequence[Origins]]]] = {
    "dynamic_update_slice": _update,
    "put": _update,
    "scatter": _update,
    "sort": _sort,
    "while": _while,
    "cond": _cond,
}
