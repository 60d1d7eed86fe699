"""Runs cases and trials in the context whose arrays are JAX's, many of them in one compiled function."""

from collections.abc import Callable, Sequence
from typing import Any, Final

import jax
import jax.numpy as jnp

from run_jax import JaxExecutionContext, arrays_of
from tests.emission._cases import Array

# Most of the time goes into compiling; results do not depend on these.
QUICKLY: Final[Any] = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}

Call = Callable[..., Any]


def in_jax(calls: Sequence[tuple[Call, Sequence[Array], bool]]) -> list[list[Array]]:
    """Runs functions of a context on their inputs, in one compiled function.

    Args:
        calls: functions with their inputs, and whether a function makes placeholders ``x0``, ``x1``, .. itself.
    """

    def every(given: Any) -> Any:
        return [_results(fn, arrays, named) for (fn, _, named), arrays in zip(calls, given, strict=True)]

    with jax.enable_x64(True):
        given = [[jnp.asarray(array) for array in inputs] for _, inputs, _ in calls]
        return jax.device_get(jax.jit(every, compiler_options=QUICKLY)(given))


def _results(fn: Call, arrays: Sequence[Any], named: bool) -> list[Any]:
    ctx = JaxExecutionContext(inputs={f"x{i}": array for i, array in enumerate(arrays)})
    results = fn(ctx) if named else fn(ctx, *map(ctx.tensor, arrays))
    return list(arrays_of(tuple(results) if isinstance(results, tuple | list) else (results,)))
