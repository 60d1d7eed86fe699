"""A machine that runs graphs in real memory, to learn what they write; only tests import this.

It shares nothing with the dataflow that it checks. Arrays are NumPy's, an op that renames its operand gives a view of
it, and an update is made in place: whether two values lie in one buffer is then for NumPy to say. Data decide nothing:
at each branch and each loop the machine takes every way there is, one run per combination.
"""

import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

import numpy as np

from compile_dag import ComputeGraph, Node, Value
from lang_core import TensorSpec

Array = np.ndarray[Any, Any]

_UPDATES: Final = ("dynamic_update_slice", "put", "scatter")
_MOVES: Final = ("broadcast", "concat", "reshape", "reverse", "slice", "transpose")
# A loop may hand a value through all that it carries before the value is written.
_ROUNDS: Final = range(4)


class TooManyWays(Exception):
    """A program has more ways through it than a test has time for."""


def fresh(spec: TensorSpec) -> Array:
    """Returns a new buffer of this shape and dtype."""
    return np.arange(spec.size, dtype=np.float64).reshape(spec.shape).astype(spec.dtype.numpy)


def one_buffer(x: Array, y: Array) -> bool:
    """Returns whether two arrays have a byte in common."""
    return bool(np.shares_memory(x, y))


class Machine:
    """Runs one way through a program.

    Attributes:
        written: arrays that updates were made in.
    """

    def __init__(self, choose: Callable[[int], int]) -> None:
        self._choose = choose
        self.written: list[Array] = []

    def run(self, nodes: Iterable[Node], values: dict[int, Array]) -> None:
        """Runs nodes; ``values`` has arrays by the number of a value, and gets the results."""
        for node in nodes:
            self.step(node, values)

    def step(self, node: Node, values: dict[int, Array]) -> None:
        """Runs one node."""
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            for value, array in zip(node.results, self._results(node, values), strict=True):
                assert array.shape == value.shape, node
                values[value.number] = array

    def _results(self, node: Node, values: dict[int, Array]) -> Sequence[Array]:
        name, inputs = node.op.name, [values[value.number] for value in node.inputs]
        if name == "cond":
            return self._region(node.attributes[self._choose(2)], (), values)
        if name == "while":
            cond, body, carried = node.attributes
            now = inputs[:carried]
            for _ in range(_ROUNDS[self._choose(len(_ROUNDS))]):
                self._region(cond, now, values)
                now = self._region(body, now, values)
            return now
        if name in _UPDATES:
            return [self._updated(node, inputs)]
        results = node.op.eager_rule(*inputs, *node.attributes)
        results = [np.asarray(x) for x in (results if isinstance(results, tuple) else (results,))]
        if _renames(node):
            return [inputs[0].reshape(results[0].shape)]
        return [np.array(x, order="C") for x in results]

    def _region(self, graph: ComputeGraph, given: Sequence[Array], values: dict[int, Array]) -> list[Array]:
        inner = dict(values)
        inner.update({value.number: array for value, array in zip(graph.inputs.values(), given, strict=True)})
        self.run(graph.nodes, inner)
        return [inner[value.number] for value in graph.outputs.values()]

    def _updated(self, node: Node, inputs: Sequence[Array]) -> Array:
        target = inputs[0]
        if target.shape == inputs[1].shape and node.op.name == "dynamic_update_slice":
            return inputs[1]
        target[...] = node.op.eager_rule(*inputs, *node.attributes)
        self.written.append(target)
        return target


def _renames(node: Node) -> bool:
    """Returns whether the result has the operand's elements in the operand's order, whatever they are."""
    if node.op.name not in _MOVES or len(node.inputs) != 1:
        return False
    x, result = node.inputs[0].spec, node.results[0].spec
    order = np.arange(x.size).reshape(x.shape)
    moved = np.asarray(node.op.eager_rule(order, *node.attributes))
    return x.size == result.size and bool((moved.reshape(-1) == order.reshape(-1)).all())


def ways(run: Callable[[Callable[[int], int]], None], most: int) -> None:
    """Runs a function once per combination of what it chooses.

    Raises:
        TooManyWays: there are more than ``most``.
    """
    taken: list[list[int]] = []  # choice and number of choices, of each step
    for _ in range(most):
        place = 0

        def choose(count: int) -> int:
            nonlocal place
            if place == len(taken):
                taken.append([0, count])
            place += 1
            return taken[place - 1][0]

        run(choose)
        del taken[place:]
        while taken and taken[-1][0] + 1 == taken[-1][1]:
            taken.pop()
        if not taken:
            return
        taken[-1][0] += 1
    raise TooManyWays


def written_by(nodes: Sequence[Node], given: Sequence[Value], most: int) -> list[bool]:
    """Returns, for each value that nodes are given in a buffer of its own, whether some way through writes it."""
    written = [False] * len(given)
    unused = {value.number: fresh(value.spec) for node in nodes for value in node.inputs}

    def run(choose: Callable[[int], int]) -> None:
        machine = Machine(choose)
        arrays = [fresh(value.spec) for value in given]
        machine.run(nodes, unused | {value.number: array for value, array in zip(given, arrays, strict=True)})
        for place, array in enumerate(arrays):
            written[place] = written[place] or any(one_buffer(array, target) for target in machine.written)

    ways(run, most)
    return written


def given_to(nodes: Sequence[Node]) -> list[Value]:
    """Returns the values that nodes use and do not make, in the order of first use."""
    made = {value.number for node in nodes for value in node.results}
    values: dict[int, Value] = {}
    for value in _used(nodes):
        if value.number not in made:
            values.setdefault(value.number, value)
    return list(values.values())


def _used(nodes: Iterable[Node]) -> Iterator[Value]:
    for node in nodes:
        same = renamed(node)
        yield from node.inputs if same is None else (same,)


def renamed(node: Node) -> Value | None:
    """Returns the operand whose name is emitted in place of a node's result; None for most nodes."""
    if node.op.name == "dynamic_update_slice" and node.inputs[1].spec == node.inputs[0].spec:
        return node.inputs[1]
    if node.op.name in ("broadcast", "reshape") and node.inputs[0].spec == node.results[0].spec:
        return node.inputs[0]
    return None
