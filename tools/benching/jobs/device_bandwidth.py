"""Measured: how fast a device of JAX reads its memory; the limit of every decode there."""

import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from tools.benching.jobs._measure import serve


def run(arguments: dict[str, Any]) -> dict[str, Any]:
    """Reads an array that no cache holds, and copies it, which reads and writes; the better rate counts.

    Args:
        arguments: ``bytes`` of the array, ``repeats``, ``device``: its kind, as JAX names it.
    """
    device = jax.devices(arguments["device"])[0]
    array = jax.device_put(jnp.arange(arguments["bytes"] // 4, dtype=jnp.float32), device)
    rates = {
        "read": array.nbytes / _best(jax.jit(jnp.max), array, arguments["repeats"]),
        "copied": 2 * array.nbytes / _best(jax.jit(jnp.negative), array, arguments["repeats"]),
    }
    return {"bytes_per_second": max(rates.values()), "kind": device.device_kind, **rates}


def _best(function: Callable[[jax.Array], jax.Array], array: jax.Array, repeats: int) -> float:
    """Returns the least seconds of a call, the first one left out."""
    seconds = []
    for _ in range(repeats + 1):
        began = time.perf_counter()
        function(array).block_until_ready()
        seconds.append(time.perf_counter() - began)
    return min(seconds[1:])


if __name__ == "__main__":
    serve(run)
