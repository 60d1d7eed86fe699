"""The ways in which a case is run."""

from collections.abc import Callable, Iterable
from typing import Final

from compile_dag import evaluate
from lang_core import EagerExecutionContext, TapelineError
from tests.conformance._onnx_cases import Case
from tests.conformance._onnx_node import Array
from tests.emission._support import interpret

Run = Callable[[Case], list[Array]]


def run_eagerly(case: Case) -> list[Array]:
    """Each op computed as it is called."""
    return case.eager()


def run_recorded(case: Case) -> list[Array]:
    """Recorded first, then the graph node by node."""
    graph, ctx = case.graph(), EagerExecutionContext()
    inputs = {name: ctx.constant(array) for name, array in zip(graph.inputs, case.arguments.values(), strict=True)}
    return [tensor.numpy() for tensor in evaluate(graph, ctx, inputs).values()]


def run_in_interpreter(case: Case) -> list[Array]:
    """Emitted, then StableHLO's reference interpreter."""
    return interpret(case.graph(), list(case.arguments.values()))


MODES: Final[dict[str, Run]] = {"eager": run_eagerly, "recorded": run_recorded, "interpreter": run_in_interpreter}


def failures(cases: Iterable[Case], run: Run) -> list[str]:
    """Runs cases and returns a line per failed one."""
    lines = []
    for case in cases:
        try:
            case.check(run(case))
        except (AssertionError, RuntimeError, TapelineError, ValueError) as error:
            lines.append(f"{case.name}: {type(error).__name__}: {' '.join(str(error).split())[:300]}")
    return lines
