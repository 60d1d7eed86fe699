"""Directions of random programs are what a machine that runs them in real memory finds."""

from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Any, Final, NamedTuple

import numpy as np
from hypothesis import assume, example, given
from hypothesis import strategies as st

from compile_dag import ComputeGraph, Node, Value, record
from compile_dag.testing import DRAWN
from compile_hlo import LoweredModule, lower_module
from compile_hlo.directions import KernelSignature
from compile_hlo.directions._oracle_testing import (
    Array,
    Machine,
    TooManyWays,
    fresh,
    given_to,
    one_buffer,
    renamed,
    ways,
    written_by,
)
from compile_hlo.directions._overlaps import FunctionOverlaps, stretch_overlaps
from compile_hlo.directions._random_testing import TENSORS, Program, X
from compile_hlo.emit import ExternalParameters
from compile_hlo.passes import without_common_subexpressions, without_dead_code
from lang_core import EagerExecutionContext, EntryPoint, TensorSpec

_WAYS: Final = 300

_SMALL: Final = st.integers(0, 16)
_PROGRAMS: Final = st.builds(
    Program,
    st.lists(st.tuples(_SMALL, _SMALL, _SMALL, st.integers(0, 2)), min_size=2, max_size=6).map(tuple),
    st.one_of(st.just(0), st.integers(0, 31)),
    st.integers(0, 7),
)


def _emitted(program: Program) -> tuple[LoweredModule, ComputeGraph]:
    """Lowers a program, buffered and streamed with the same result; returns that and the graph that was emitted."""
    point = program.entry_point()
    buffered, streamed = (
        lower_module([point], lambda _: None, ExternalParameters(), streaming=streaming) for streaming in (False, True)
    )
    assert buffered.functions[0].directions == streamed.functions[0].directions
    assert list(map(_of_kernel, buffered.kernels)) == list(map(_of_kernel, streamed.kernels))
    return buffered, _graph(point)


def _graph(point: EntryPoint) -> ComputeGraph:
    names, specs = zip(*[(argument.name, argument.spec) for argument in point.arguments], strict=True)
    return without_common_subexpressions(
        without_dead_code(record(point.fn, *specs, input_names=names, name=point.name))
    )


def _of_kernel(kernel: KernelSignature) -> Any:
    return kernel.call_sites, tuple(
        (argument.spec, argument.declared, argument.effective) for argument in kernel.arguments
    )


class _Call(NamedTuple):
    """Stretch of a block: the tensors that it is given, and which of them it writes."""

    text: str
    specs: list[TensorSpec]
    donated: list[bool]
    written: list[bool]


def _calls(graph: ComputeGraph, donated: Sequence[bool]) -> list[_Call]:
    """Returns every stretch that is lowered as a call, as the machine sees it."""
    pieces = [list(nodes) for _, nodes in groupby(graph.nodes, key=lambda node: node.stretch)]
    stretches = [
        [node for node in nodes if node.op.name != "constant"]
        for nodes in pieces
        if any(node.block and node.op.name != "constant" for node in nodes)
    ]
    constants = {value.number for node in graph.nodes if node.op.name == "constant" for value in node.results}
    passed = [[value for value in given_to(nodes) if value.number not in constants] for nodes in stretches]
    may_be_donated = [[False] * len(values) for values in passed]
    first = {nodes[0]: number for number, nodes in enumerate(stretches)}

    def run(choose: Callable[[int], int]) -> None:
        machine = Machine(choose)
        values = {value.number: fresh(value.spec) for value in graph.inputs.values()}
        taken = [values[value.number] for value, given in zip(graph.inputs.values(), donated, strict=False) if given]
        for node in graph.nodes:
            number = first.get(node)
            if number is not None:
                for place, value in enumerate(passed[number]):
                    if any(one_buffer(values[value.number], array) for array in taken):
                        may_be_donated[number][place] = True
            machine.step(node, values)

    ways(run, _WAYS)
    overlapping = FunctionOverlaps().overlapping(stretch_overlaps(graph.nodes, ()).updates)
    calls = []
    for number, (nodes, values) in enumerate(zip(stretches, passed, strict=True)):
        everything = given_to(nodes)
        written = dict(zip(everything, written_by(nodes, everything, _WAYS), strict=True))
        calls.append(
            _Call(
                _text(graph, nodes, overlapping),
                [value.spec for value in values],
                may_be_donated[number],
                [written[value] for value in values],
            )
        )
    return calls


def _text(graph: ComputeGraph, nodes: Sequence[Node], overlapping: frozenset[int]) -> str:
    """Returns a text that is equal for stretches that become one function.

    These have the same ops, wiring, results used later and updates that overlap, which are written in another form.
    """
    inside = set(nodes)
    later = {value.number for node in graph.nodes if node not in inside for value in node.inputs}
    later |= {value.number for value in graph.outputs.values()}
    numbers: dict[int, int] = {}
    lines = []

    def of(attribute: Any) -> str:
        if isinstance(attribute, ComputeGraph):
            return _region(attribute)
        return repr(attribute.array.tolist()) if hasattr(attribute, "array") else repr(attribute)

    def _region(region: ComputeGraph) -> str:
        inner = [line(node) for node in region.nodes]
        return f"{{{inner} -> {[number(value) for value in region.outputs.values()]}}}"

    def number(value: Any) -> int:
        return numbers.setdefault(value.number, len(numbers))

    constants = {v.number: of(n.attributes[0]) for n in graph.nodes if n.op.name == "constant" for v in n.results}

    def line(node: Node) -> str:
        operands = [constants.get(value.number) or f"{number(value)}:{value.spec!r}" for value in node.inputs]
        attributes = [of(attribute) for attribute in node.attributes]
        form = "again" if any(value.number in overlapping for value in node.results) else "once"
        return f"{form} {node.op.name} {operands} {attributes} {[number(value) for value in node.results]}"

    for node in nodes:
        same = renamed(node)
        if same is None:
            lines.append(line(node))
        else:  # it is written as the operand
            numbers[node.results[0].number] = number(same)
    results = [number(value) for node in nodes for value in node.results if value.number in later]
    return "\n".join([*lines, f"return {results}"])


def _joined(calls: Sequence[_Call]) -> list[Any]:
    """Joins call sites by function: for each their number, and the arguments as used at any of them, scalars last."""
    signatures = []
    for _, alike in groupby(sorted(calls, key=lambda call: call.text), key=lambda call: call.text):
        sites = list(alike)
        arguments = [
            (spec, "INOUT" if any(d) else "IN", "INOUT" if any(w) else "IN")
            for spec, d, w in zip(
                sites[0].specs,
                zip(*[site.donated for site in sites], strict=True),
                zip(*[site.written for site in sites], strict=True),
                strict=True,
            )
        ]
        signatures.append((len(sites), tuple(sorted(arguments, key=repr))))
    return sorted(signatures, key=repr)


@DRAWN
@given(_PROGRAMS)
def test_what_is_written_is_what_a_machine_writes(program: Program) -> None:
    lowered, graph = _emitted(program)
    point = program.entry_point()
    tensors = [value for value in graph.inputs.values() if value.shape]
    donated = [argument.alias_result is not None for argument in point.arguments]
    try:
        written = written_by(graph.nodes, list(graph.inputs.values()), _WAYS)
        calls = _calls(graph, donated)
    except TooManyWays:
        assume(False)
        return
    directions = lowered.functions[0].directions
    assert len(directions) == len(tensors)
    for argument, taken, wrote in zip(directions, donated, written, strict=False):
        assert argument.declared == ("INOUT" if taken else "IN")
        assert (argument.written is not None and argument.written.certain) == wrote, argument
        assert (argument.effective != "IN") == (taken or wrote), argument
        assert argument.guarded or taken or not wrote
    expected = _joined(calls)
    actual = sorted(
        ((kernel.call_sites, tuple(sorted(_of_kernel(kernel)[1], key=repr))) for kernel in lowered.kernels), key=repr
    )
    assert actual == expected


@DRAWN
@given(_PROGRAMS, st.integers(0, 2))
def test_what_a_result_depends_on_is_read(program: Program, number: int) -> None:
    """Runs with other data: an argument that results depend on is IN or INOUT, never OUT."""
    lowered, graph = _emitted(program)
    name = TENSORS[number]
    rng = np.random.default_rng(3)
    data = {tensor: rng.standard_normal(X.shape).astype(np.float32) for tensor in TENSORS}
    other = data | {name: data[name] + 1}
    if any(
        not np.array_equal(_results(program, data, at), _results(program, other, at), equal_nan=True) for at in range(4)
    ):
        (argument,) = (argument for argument in lowered.functions[0].directions if argument.name == name)
        assert argument.effective != "OUT"
        assert name in graph.inputs


def _results(program: Program, data: dict[str, Array], at: int) -> list[Array]:
    ctx = EagerExecutionContext()
    row = ctx.constant(np.linspace(5, 6, 6, dtype=np.float32).reshape(1, 6))
    x, y, z = map(ctx.constant, data.values())
    results = program.fn(ctx, x, y, z, row, ctx.constant(np.int32(at)))
    return [tensor.numpy() for tensor in results.values()]


# Few programs that are drawn have an alias and what forbids it: two updates of x, of which the other result reads one;
# an update of what is read; the same update twice, which is one.
_FORKED: Final = Program(((9, 0, 0, 0), (0, 0, 0, 0), (10, 4, 1, 0)), 0b010, 1)
_READ_BETWEEN: Final = Program(((9, 0, 0, 0), (0, 3, 0, 0), (10, 3, 1, 0)), 0b001, 1)
_ONE_TWICE: Final = Program(((9, 0, 0, 0), (9, 0, 0, 0), (10, 4, 1, 0)), 0b010, 1)
_CHAIN: Final = Program(((9, 0, 0, 0), (10, 3, 1, 0)), 0, 1)


@DRAWN
@given(_PROGRAMS)
@example(_FORKED)
@example(_READ_BETWEEN)
@example(_ONE_TWICE)
@example(_CHAIN)
def test_an_alias_is_told_of_a_chain_that_nothing_else_uses(program: Program) -> None:
    """IREE does not know that an argument and the buffer of the alias are one."""
    lowered, graph = _emitted(program)
    taken_by = {argument.name: argument.alias_result for argument in program.entry_point().arguments}
    for argument in lowered.functions[0].directions:
        if argument.in_place:
            assert argument.name in graph.inputs
            before, after = _chain(graph, graph.inputs[argument.name], graph.outputs[taken_by[argument.name] or ""])
            for value in before:
                assert _uses(graph, value) == 1, argument
            for value in after:
                assert not _updates(graph, value), argument


def _chain(graph: ComputeGraph, x: Value, result: Value) -> tuple[list[Value], list[Value]]:
    """Returns the values from an argument to its last update, that not included, and the result with its renamings."""
    maker = {value.number: node for node in graph.nodes for value in node.results}
    values, last = [result], 0
    while values[-1] is not x:
        node = maker[values[-1].number]
        same = renamed(node)
        if same is None and node.op.name in ("dynamic_update_slice", "put"):
            last = last or len(values)
        else:
            assert same is not None or node.op.name == "reshape", node
        values.append(node.inputs[0] if same is None else same)
    before, after = (values[last:], values[:last]) if last else ([], values)
    for value in after:  # grows
        after += [n.results[0] for n in graph.nodes if n.op.name == "reshape" and n.inputs[0] is value]
    return before, after


def _uses(graph: ComputeGraph, value: Value) -> int:
    """Counts the uses of a value by nodes, regions included, and as a result."""
    given = [operand for node in graph.nodes for operand in node.inputs]
    return sum(operand is value for operand in (*given, *graph.outputs.values()))


def _updates(graph: ComputeGraph, value: Value) -> bool:
    return any(
        node.op.name in ("dynamic_update_slice", "put") and renamed(node) is None and node.inputs[0] is value
        for node in graph.nodes
    )
