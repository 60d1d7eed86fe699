"""Measured: the peer, ``jax.export`` of the same forward, or its tracing alone, with abstract weights."""

import functools
import time
from collections.abc import Callable
from typing import Any

import jax
from jax import export

from tools.benching.jobs._jax_llama import abstract_parameters, abstract_tokens, forward
from tools.benching.jobs._measure import Meter, serve


def run(arguments: dict[str, Any]) -> dict[str, Any]:
    """Exports (or traces) once, measured; where memory is not watched, once more for the time alone.

    Args:
        arguments: ``config`` as in config.json, ``sequence``, ``trace`` (only trace), ``watch``.
    """
    jax.devices()  # starting the backend is no part of what is measured
    meter = Meter()
    work = _trace if arguments["trace"] else _export
    with meter.measure(arguments["watch"]) as cost:
        exported = work(_model(arguments["config"]), arguments)
    result = cost.as_json() | exported
    if not arguments["watch"]:
        model = _model(arguments["config"])  # a function of its own: what is known of the other one is not used
        began = time.perf_counter()
        work(model, arguments)
        result["seconds_again"] = time.perf_counter() - began
    return result


def _model(config: dict[str, Any]) -> Callable[..., jax.Array]:
    return functools.partial(forward, config)


def _export(model: Callable[..., jax.Array], arguments: dict[str, Any]) -> dict[str, Any]:
    inputs = abstract_parameters(arguments["config"]), abstract_tokens(arguments["sequence"])
    return {"text_bytes": len(export.export(jax.jit(model), platforms=["cpu"])(*inputs).mlir_module())}


def _trace(model: Callable[..., jax.Array], arguments: dict[str, Any]) -> dict[str, Any]:
    inputs = abstract_parameters(arguments["config"]), abstract_tokens(arguments["sequence"])
    return {"nodes": _equations(jax.make_jaxpr(model)(*inputs).jaxpr)}


def _equations(jaxpr: Any) -> int:
    inner = [value.jaxpr for equation in jaxpr.eqns for value in equation.params.values() if hasattr(value, "jaxpr")]
    return len(jaxpr.eqns) + sum(map(_equations, inner))


if __name__ == "__main__":
    serve(run)
