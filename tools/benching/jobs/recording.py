"""Measured: recording ops and building the verified graph."""

import statistics
import time
from collections.abc import Callable
from typing import Any

from compile_dag import ComputeGraph, record
from compile_hlo import record_entry_point
from lang_core import ExecutionContext, Tensor, TensorSpec
from tools.benching.jobs._measure import serve
from transformer_core.models import DecoderConfig, DecoderLM, entry_points


def run(arguments: dict[str, Any]) -> dict[str, Any]:
    """Records several times; nodes of the graph per second.

    Args:
        arguments: ``config`` as in config.json and ``sequence``, or ``chain``, a number of ops; and ``repeats``.
    """
    work = _chain(arguments["chain"]) if "chain" in arguments else _forward(arguments)
    rates, cpu_rates = [], []
    nodes = 0
    for _ in range(arguments["repeats"]):
        began, cpu_began = time.perf_counter(), time.process_time()
        graph = work()
        seconds, cpu_seconds = time.perf_counter() - began, time.process_time() - cpu_began
        nodes = len(graph.nodes)
        rates.append(nodes / seconds)
        cpu_rates.append(nodes / cpu_seconds)
    return {
        "nodes": nodes,
        "first": rates[0],
        "median": statistics.median(rates),
        "best": max(rates),
        "cpu_median": statistics.median(cpu_rates),
    }


def _forward(arguments: dict[str, Any]) -> Callable[[], ComputeGraph]:
    model = DecoderLM(DecoderConfig.from_hf(arguments["config"]))
    point = entry_points(model, names=["forward"], sequence=arguments["sequence"])[0]
    return lambda: record_entry_point(point)


def _chain(length: int) -> Callable[[], ComputeGraph]:
    def chain(ctx: ExecutionContext, x: Tensor) -> Tensor:
        for _ in range(length // 2):
            x = ctx.ops.exp(ctx.ops.add(x, x))
        return x

    return lambda: record(chain, TensorSpec((3, 5), "f32"))


if __name__ == "__main__":
    serve(run)
