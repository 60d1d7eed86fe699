"""Measured: choosing the configuration of a kernel whose call is remembered in memory."""

import importlib
import statistics
import time
import timeit
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from autotune import ConfigSelectorChain, Executor, Invocation, Kernel, Tuner
from autotune.supplied import AttentionKernel, LinearKernel
from tools.benching.jobs._measure import serve

_REPEATED: Final = 1e6  # seconds to microseconds


def run(arguments: dict[str, Any]) -> dict[str, Any]:
    """Microseconds per choice, processor time.

    Args:
        arguments: ``number`` of calls in a row, ``repeats`` of that, ``jax`` to have it loaded, as some programs do.

    Returns:
        By kernel: ``choose_us`` of ``ConfigSelectorChain.choose``, which gets the invocation; ``choose_config_us`` of
        ``Executor.choose_config``, which makes it; ``tier``, which the choice was from; ``provenance``.
    """
    if arguments["jax"]:
        importlib.import_module("jax")
    chain: ConfigSelectorChain[Any, Any] = ConfigSelectorChain(policy="autotune", tuner=Tuner(rounds=1, iters=1))
    executor = Executor(chain)
    return {
        name: _measured(executor, kernel, args, kwargs, arguments["number"], arguments["repeats"])
        for name, (kernel, args, kwargs) in _calls().items()
    }


def _calls() -> dict[str, tuple[Kernel[Any, Any], tuple[Any, ...], dict[str, Any]]]:
    q, k = np.ones((1, 4, 5, 8), np.float32), np.ones((1, 2, 7, 8), np.float32)
    x, weight = np.ones((3, 16), np.float32), np.ones((24, 16), np.float32)
    return {
        "attention, three arrays and two values": (AttentionKernel(), (q, k, k), {"causal": True, "scale": 0.5}),
        "linear, two arrays": (LinearKernel(), (x, weight), {}),
    }


def _measured(
    executor: Executor, kernel: Kernel[Any, Any], args: Any, kwargs: Any, number: int, repeats: int
) -> dict[str, Any]:
    executor.choose_config(kernel, *args, **kwargs)  # it is tuned here
    invocation: Invocation[Any, Any] = Invocation(kernel.op_id, args, kwargs)
    selection = executor.explain(kernel, *args, **kwargs)
    return {
        "choose_us": _each(lambda: executor.chooser.choose(invocation, kernel), number, repeats),
        "choose_config_us": _each(lambda: executor.choose_config(kernel, *args, **kwargs), number, repeats),
        "tier": selection.tier,
        "provenance": selection.provenance,
    }


def _each(call: Callable[[], Any], number: int, repeats: int) -> float:
    # Processor time of this thread: what other processes do on the machine is not counted.
    times = timeit.Timer(call, timer=time.thread_time).repeat(repeats, number)
    return statistics.median(times) / number * _REPEATED


if __name__ == "__main__":
    serve(run)
