"""Traces of a debug module, which XLA does not know, as further results of its functions.

A trace in a loop or a branch is met any number of times: its tensors are kept in buffers of so many rounds, which are
carried through the loops, beside a count of all rounds.
"""

import itertools
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from jaxlib.mlir import ir

from lang_core import InputError
from run_jax.sessions._memory import fetch

_TRACE: Final = "flow.tensor.trace"
_LOOP: Final = "stablehlo.while"


class Trace(NamedTuple):
    """Trace of a function.

    Attributes:
        key: name that the text gives it.
        tensors: number of its tensors.
        rounds: rounds for which there is place; None outside of loops and branches, where it is met once.
    """

    key: str
    tensors: int
    rounds: int | None

    @property
    def results(self) -> int:
        """Number of results: in loops and branches the count of rounds comes first."""
        return self.tensors + (self.rounds is not None)


def return_traces(function: Any, rounds: int) -> tuple[Trace, ...]:
    """Replaces the traces of a function by results behind its own, in the order of the text.

    Args:
        function: a ``func.func`` of a parsed module; its type is changed too.
        rounds: rounds of a loop for which there is place; the last place has all later ones.

    Raises:
        InputError: the condition of a loop has a trace.
    """
    block = function.regions[0].blocks[0]
    with ir.Location.unknown():
        returning = _Returning(block, rounds)
        if not returning.traces:
            return ()
        results = returning.walk(block, returning.start(block))
        _end(block, [value for shown in returning.shown(results) for value in shown])
    kinds = [value.type for value in _last(block).operands]
    function.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(function.type.inputs, kinds))
    return tuple(returning.traces)


def most_rounds(traces: Sequence[Trace], results: Sequence[Any]) -> int:
    """Returns how often the trace was met that was met most often, of results behind a function's own."""
    counts = [tensors[0] for trace, tensors in _grouped(traces, results) if trace.rounds is not None]
    return max((int(fetch(count)) for count in counts), default=0)


def met(traces: Sequence[Trace], results: Sequence[Any]) -> Iterator[tuple[str, list[np.ndarray[Any, Any]]]]:
    """Yields the key and the tensors of each trace that was met: in the order of the text, loops round by round."""
    grouped = _grouped(traces, results)
    for is_inside, group in itertools.groupby(grouped, lambda pair: pair[0].rounds is not None):
        shown = [(trace.key, [fetch(tensor) for tensor in tensors]) for trace, tensors in group]
        yield from _by_rounds(shown) if is_inside else shown


def _by_rounds(
    shown: Sequence[tuple[str, list[np.ndarray[Any, Any]]]],
) -> Iterator[tuple[str, list[np.ndarray[Any, Any]]]]:
    for number in range(max(int(arrays[0]) for _, arrays in shown)):
        for key, arrays in shown:
            if number < int(arrays[0]):
                yield key, [array[number] for array in arrays[1:]]


def _grouped(traces: Sequence[Trace], results: Sequence[Any]) -> Iterator[tuple[Trace, Sequence[Any]]]:
    place = 0
    for trace in traces:
        yield trace, results[place : place + trace.results]
        place += trace.results


class _Returning:
    """Rewriter of one function. Its state are the counts and buffers of all traces in loops and branches, in order."""

    def __init__(self, block: Any, rounds: int) -> None:
        self.traces: Final[list[Trace]] = []
        self._kinds: Final[list[Any]] = []  # of the state
        self._places: Final[list[int]] = []  # per trace that of its count in the state
        self._values: Final[list[Sequence[Any]]] = []  # per trace; none in loops and branches
        self._met = 0
        for op, is_inside in _traces(block, False):
            key = ir.StringAttr(op.attributes["key"]).value
            self.traces.append(Trace(key, len(op.operands), rounds if is_inside else None))
            self._places.append(len(self._kinds))
            if is_inside:
                kinds = [ir.RankedTensorType(value.type) for value in op.operands]
                buffers = [ir.RankedTensorType.get([rounds, *kind.shape], kind.element_type) for kind in kinds]
                self._kinds.extend([_count_type(), *buffers])

    def start(self, block: Any) -> list[Any]:
        """Writes the state before the first round at a function's beginning."""
        with ir.InsertionPoint.at_block_begin(block):
            return [_constant(kind, 0) for kind in self._kinds]

    def walk(self, block: Any, state: Sequence[Any], *, is_inside: bool = False) -> Sequence[Any]:
        """Takes the traces out of a block; returns the state at its end."""
        for op in list(block.operations):
            if _name(op) == _TRACE:
                state = self._taken(op, state, is_inside)
                op.erase()
            elif any(_traces_within(op)):
                state = self._carrying(op, state)
        return state

    def shown(self, state: Sequence[Any]) -> Iterator[Sequence[Any]]:
        """Yields the results of each trace."""
        for trace, place, values in zip(self.traces, self._places, self._values, strict=True):
            yield values if trace.rounds is None else state[place : place + trace.results]

    def _taken(self, op: Any, state: Sequence[Any], is_inside: bool) -> Sequence[Any]:
        place, values = self._places[self._met], list(op.operands)
        self._met += 1
        self._values.append([] if is_inside else values)
        if not is_inside:
            return state
        taken = list(state)
        with ir.InsertionPoint(op):
            count = taken[place]
            for number, value in enumerate(values, place + 1):
                taken[number] = _put(taken[number], value, count)
            taken[place] = _made("stablehlo.add", count.type, [count, _constant(count.type, 1)])
        return taken

    def _carrying(self, op: Any, state: Sequence[Any]) -> Sequence[Any]:
        """Writes a loop or a branch once more, with the state as further results; returns these."""
        is_loop, own = _name(op) == _LOOP, [value.type for value in op.results]
        new = ir.Operation.create(
            _name(op),
            results=[*own, *self._kinds],
            operands=[*op.operands, *(state if is_loop else ())],
            attributes={name: op.attributes[name] for name in op.attributes},
            regions=len(op.regions),
            ip=ir.InsertionPoint(op),
        )
        for number, (old, region) in enumerate(zip(op.regions, new.regions, strict=True)):
            old.blocks[0].append_to(region)
            block = region.blocks[0]
            unknown = ir.Location.unknown()
            inner = [block.add_argument(kind, unknown) for kind in self._kinds] if is_loop else state
            if is_loop and number == 0:
                _check_condition(block)
            else:
                _end(block, self.walk(block, inner, is_inside=True))
        for before, after in zip(op.results, new.results, strict=False):
            before.replace_all_uses_with(after)
        op.erase()
        return list(new.results)[len(own) :]


def _check_condition(block: Any) -> None:
    for op, _ in _traces(block, True):
        raise InputError(
            f"{ir.StringAttr(op.attributes['key']).value!r} is in the condition of a loop, where engine=jax shows no "
            f"tensor: leave it out of `dump_tags`"
        )


def _traces(block: Any, is_inside: bool) -> Iterator[tuple[Any, bool]]:
    """Yields the traces of a block, in order, and whether they are in a loop or a branch."""
    for op in block.operations:
        if _name(op) == _TRACE:
            yield op.operation, is_inside
        else:
            yield from _traces_within(op)


def _traces_within(op: Any) -> Iterator[tuple[Any, bool]]:
    for region in op.operation.regions:
        for block in region.blocks:
            yield from _traces(block, True)


def _name(op: Any) -> str:
    return op.operation.name


def _last(block: Any) -> Any:
    return block.operations[len(block.operations) - 1]


def _end(block: Any, values: Sequence[Any]) -> None:
    """Adds values to the op that ends a block."""
    last = _last(block)
    operands = [*last.operands, *values]
    ir.Operation.create(_name(last), operands=operands, ip=ir.InsertionPoint(last))
    last.operation.erase()


def _put(buffer: Any, value: Any, count: Any) -> Any:
    kind = ir.RankedTensorType(value.type)
    row = _made("stablehlo.reshape", ir.RankedTensorType.get([1, *kind.shape], kind.element_type), [value])
    starts = [count, *[_constant(count.type, 0)] * len(kind.shape)]
    return _made("stablehlo.dynamic_update_slice", buffer.type, [buffer, row, *starts])


def _count_type() -> Any:
    return ir.RankedTensorType.get([], ir.IntegerType.get_signless(32))


def _constant(kind: Any, number: int) -> Any:
    element = ir.RankedTensorType(kind).element_type
    is_integer = isinstance(element, ir.IntegerType)
    attribute = ir.IntegerAttr.get(element, number) if is_integer else ir.FloatAttr.get(element, float(number))
    splat = ir.DenseElementsAttr.get_splat(kind, attribute)
    return ir.Operation.create("stablehlo.constant", results=[kind], attributes={"value": splat}).result


def _made(name: str, kind: Any, operands: Sequence[Any]) -> Any:
    return ir.Operation.create(name, results=[kind], operands=operands).result
