"""Runs probes on every engine."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import jax
import numpy as np

from compile_dag import ComputeGraph, record
from lang_core import EagerExecutionContext
from run_iree import Session
from run_jax import JaxExecutionContext, StableHloFunction, arrays_of
from tests.emission._support import interpret, text_of
from tests.values._grid import Array, Probe

HOST_ENGINES: Final = ("eager", "interpreter", "XLA", "JAX context")
"""Engines that need no device of IREE."""


def results_of(engine: str, probes: Sequence[Probe]) -> list[list[Array]]:
    """Runs probes on an engine that needs no device of IREE."""
    with jax.enable_x64(True):
        if engine == "JAX context":
            return _in_jax(probes)
        run = {"eager": _eagerly, "interpreter": _interpreted, "XLA": _on_xla}[engine]
        return [run(probe) for probe in probes]


def module_of(probes: Sequence[Probe]) -> str:
    """Returns a module of which each probe is an entry point."""
    return text_of(map(_graph, probes))


def on_device(device: str, probes: Sequence[Probe], output: Path) -> list[list[Array]]:
    """Runs probes on a device of IREE, as entry points of a compiled module."""
    with Session(output, device) as session:
        return [[x.numpy() for x in session.function(probe.entry)(*probe.inputs)] for probe in probes]


def _graph(probe: Probe) -> ComputeGraph:
    names = [f"x{i}" for i in range(len(probe.inputs))]
    return record(probe.fn, *probe.specs, input_names=names, name=probe.entry)


def _tuple(results: Any) -> tuple[Any, ...]:
    return tuple(results) if isinstance(results, tuple | list) else (results,)


def _eagerly(probe: Probe) -> list[Array]:
    ctx = EagerExecutionContext()
    return [tensor.numpy() for tensor in _tuple(probe.fn(ctx, *map(ctx.constant, probe.inputs)))]


def _interpreted(probe: Probe) -> list[Array]:
    return interpret(_graph(probe), probe.inputs)


def _on_xla(probe: Probe) -> list[Array]:
    return list(StableHloFunction(text_of([_graph(probe)]), probe.entry)(*probe.inputs))


def _in_jax(probes: Sequence[Probe]) -> list[list[Array]]:
    def every(given: Any) -> Any:
        ctx = JaxExecutionContext()
        return [
            list(arrays_of(_tuple(probe.fn(ctx, *map(ctx.tensor, arrays)))))
            for probe, arrays in zip(probes, given, strict=True)
        ]

    results = jax.device_get(jax.jit(every)([list(probe.inputs) for probe in probes]))
    return [[np.asarray(array) for array in arrays] for arrays in results]
