"""Arrays of JAX, known by their type. JAX is never imported here: where one of its arrays is, it is loaded already."""

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final

import numpy as np

_KINDS: Final[dict[type, bool]] = {}
# What most arguments are: neither of JAX, nor anything that holds such.
HOST_KINDS: Final = frozenset((np.ndarray, bool, int, float, str, type(None)))


def jax_module() -> Any:
    """The ``jax`` module if this process has loaded it, else None."""
    return sys.modules.get("jax")


def is_jax(value: Any) -> bool:
    """Whether a value is an array or a tracer of JAX."""
    kind = type(value)
    known = _KINDS.get(kind)
    if known is None:
        jax = jax_module()
        known = kind.__module__.partition(".")[0] in ("jax", "jaxlib") and jax is not None and _is_array(jax, value)
        _KINDS[kind] = known
    return known


def _is_array(jax: Any, value: Any) -> bool:
    return isinstance(value, jax.Array)


def is_tracer(value: Any) -> bool:
    """Whether a value stands for data that is not there, in one of JAX's transformations."""
    return is_jax(value) and isinstance(value, jax_module().core.Tracer)


def is_tracing() -> bool:
    """Whether JAX traces a function now: then even what is made from numbers has no data."""
    jax = jax_module()
    return jax is not None and hasattr(jax, "numpy") and isinstance(jax.numpy.zeros(()), jax.core.Tracer)


def wait(value: Any) -> Any:
    """Waits for an array that is computed behind our back; gives it back."""
    ready = getattr(value, "block_until_ready", None)
    return value if ready is None else ready()


def named_scope(label: str) -> AbstractContextManager[Any]:
    """Names what JAX traces inside."""
    jax = jax_module()
    return nullcontext() if jax is None else jax.named_scope(label)


def jitted(fn: Callable[..., Any]) -> Callable[..., Any]:
    """The function of arrays, compiled by JAX."""
    return jax_module().jit(fn)


def with_gradient(
    primal: Callable[..., Any], forward: Callable[..., Any], backward: Callable[..., Any]
) -> Callable[..., Any]:
    """``primal(*arrays)`` whose gradient is ours.

    Args:
        primal: the function.
        forward: gives the result and what backward needs.
        backward: ``(kept, cotangent) -> gradients``, one per array.
    """
    function = jax_module().custom_vjp(primal)
    function.defvjp(forward, backward)
    return function


def as_jax(array: Any) -> Any:
    """A NumPy array as one of JAX, where JAX is loaded."""
    jax = jax_module()
    return array if jax is None else jax.numpy.asarray(array)


def as_numpy(array: Any) -> Any:
    """An array of JAX, with data, as one of NumPy; any other as it is."""
    return np.asarray(array) if is_jax(array) else array


def without_gradient(array: Any) -> Any:
    """The array, through which no gradient flows."""
    return jax_module().lax.stop_gradient(array) if is_jax(array) else array


def zero_gradient(array: Any) -> Any:
    """The gradient of an array that has none, as JAX wants it."""
    jax = jax_module()
    floating = jax.numpy.issubdtype(array.dtype, jax.numpy.inexact)
    return jax.numpy.zeros(array.shape, array.dtype) if floating else np.zeros(array.shape, jax.dtypes.float0)
