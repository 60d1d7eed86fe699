"""Measured: what the eager context adds to a call of NumPy."""

import statistics
import time
import timeit
from collections.abc import Callable
from typing import Any

import numpy as np

from lang_core import EagerExecutionContext
from tools.benching.jobs._measure import serve

Pair = tuple[Callable[[], Any], Callable[[], Any]]


def run(arguments: dict[str, Any]) -> dict[str, Any]:
    """Times ops and the bare NumPy calls in turn; microseconds per call by processor time.

    Args:
        arguments: ``number`` of calls in a row, ``repeats`` of that.
    """
    return {name: _compared(*pair, arguments["number"], arguments["repeats"]) for name, pair in _pairs().items()}


def _compared(ours: Callable[[], Any], bare: Callable[[], Any], number: int, repeats: int) -> dict[str, float]:
    # Processor time of this thread: what other processes do on the machine is not counted.
    timers = [timeit.Timer(call, timer=time.thread_time) for call in (ours, bare)]
    times = [[timer.timeit(number) / number * 1e6 for timer in timers] for _ in range(repeats)]
    return {
        "ours_us": statistics.median(mine for mine, _ in times),
        "bare_us": statistics.median(other for _, other in times),
        "overhead_us": statistics.median(mine - other for mine, other in times),
        "least_overhead_us": min(mine for mine, _ in times) - min(other for _, other in times),
    }


def _pairs() -> dict[str, Pair]:
    ctx = EagerExecutionContext()
    ops = ctx.ops
    a = np.linspace(0, 1, 12, dtype=np.float32).reshape(3, 4)
    b = np.linspace(1, 2, 20, dtype=np.float32).reshape(4, 5)
    x, y, w = ctx.constant(a), ctx.constant(b), ctx.constant(b.T)
    w_transposed = w.numpy().T
    return {
        "add": (lambda: ops.add(x, x), lambda: np.add(a, a)),
        "exp": (lambda: ops.exp(x), lambda: np.exp(a)),
        "reshape": (lambda: ops.reshape(x, (2, 6)), lambda: np.reshape(a, (2, 6))),
        "sum": (lambda: ops.sum(x, (1,)), lambda: np.sum(a, (1,))),
        "mul by a number": (lambda: ops.mul(x, 2.0), lambda: np.multiply(a, 2.0)),
        "dot_general": (lambda: ops.dot_general(x, y, ((1,), (0,))), lambda: np.matmul(a, b)),
        "linear": (lambda: ops.linear(x, w), lambda: np.matmul(a, w_transposed)),
    }


if __name__ == "__main__":
    serve(run)
