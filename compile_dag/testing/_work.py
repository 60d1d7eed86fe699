"""Work that grows with the nodes, and its measure. Only tests import this.

Ten times as many nodes must take about ten times the work. Calls of functions are counted, which is exact, and
processor time is measured, which also sees the scan of a list or the copy of a table inside one call. Of quadratic
work the ratio would be 100.
"""

import gc
import sys
import time
from collections.abc import Callable
from types import FrameType
from typing import Any, Final

from compile_dag import ComputeGraph, GraphExecutionContext, Tape
from lang_core import TensorSpec

FEW: Final = 5_000
MANY: Final = 50_000
X: Final = TensorSpec((2,), "f32")


def recorded(count: int) -> Tape:
    """Records a chain of ``count`` nodes in which far values are used too, in blocks of 100 nodes."""
    ctx = GraphExecutionContext()
    with ctx.recording() as tape:
        first = x = ctx.placeholder("x", X)
        for start in range(0, count, 100):
            with ctx.block(f"block{start}"):
                for _ in range(50):
                    x = ctx.ops.add(ctx.ops.negate(x), first)
    return tape


def graph_of(tape: Tape) -> ComputeGraph:
    """Returns the graph with the last result as output."""
    return ComputeGraph("g", tape.inputs, tuple(tape.nodes), {"y": tape.nodes[-1].results[0]})


def calls_of(stage: Callable[[], object]) -> int:
    """Counts the functions, of Python and of C, that a stage calls."""
    count = 0

    def hook(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(hook)
    try:
        stage()
    finally:
        sys.setprofile(None)
    return count


def seconds_of(stage: Callable[[], object]) -> float:
    """Returns the processor time of a stage in seconds, the better of two."""
    seconds = []
    for _ in range(2):
        gc.collect()
        gc.disable()
        before = time.process_time()
        stage()
        seconds.append(time.process_time() - before)
        gc.enable()
    return min(seconds)


def assert_linear(few: Callable[[], object], many: Callable[[], object], ratio: float = 10.0) -> None:
    """Checks that ``many``, which has ``ratio`` times the nodes of ``few``, does not do much more than that."""
    assert calls_of(many) <= 1.01 * ratio * calls_of(few) + 1000
    assert seconds_of(many) <= 3 * ratio * seconds_of(few) + 0.05
