"""JAX's arrays and transformations, without importing JAX: if a value is one of its arrays, JAX is loaded already."""

import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final

import numpy as np

from lang_core import Tensor

_KINDS: Final[dict[type, bool]] = {}
HOST_KINDS: Final = frozenset((np.ndarray, bool, int, float, str, type(None)))
"""Types of most arguments: no array of JAX, and no container of arrays."""


def jax_module() -> Any:
    """Returns the ``jax`` module if this process has loaded it, else None."""
    return sys.modules.get("jax")


def is_jax(value: Any) -> bool:
    """Returns whether a value is an array or a tracer of JAX."""
    kind = type(value)
    known = _KINDS.get(kind)
    if known is None:
        jax = jax_module()
        known = kind.__module__.partition(".")[0] in ("jax", "jaxlib") and jax is not None and _is_array(jax, value)
        _KINDS[kind] = known
    return known


def _is_array(jax: Any, value: Any) -> bool:
    return isinstance(value, jax.Array)


def data_of(value: Any) -> Any:
    """Returns the array of a tensor with JAX data, and any other value unchanged."""
    data = getattr(value, "data", None) if isinstance(value, Tensor) else None
    return data if is_jax(data) else value


def is_tracer(value: Any) -> bool:
    """Returns whether a value is a tracer, or a tensor with one, so that it lacks data."""
    value = data_of(value)
    return is_jax(value) and isinstance(value, jax_module().core.Tracer)


def is_tracing() -> bool:
    """Returns whether JAX is tracing a function: then even arrays made of numbers lack data."""
    jax = jax_module()
    return jax is not None and hasattr(jax, "numpy") and isinstance(jax.numpy.zeros(()), jax.core.Tracer)


def wait(value: Any) -> Any:
    """Waits until an array is computed, for libraries that compute asynchronously; returns the array."""
    ready = getattr(value, "block_until_ready", None)
    return value if ready is None else ready()


def named_scope(label: str) -> AbstractContextManager[Any]:
    """Returns a context manager that names the ops traced inside, with ~ for @: XLA drops a name's rest from @ on."""
    jax = jax_module()
    return nullcontext() if jax is None else jax.named_scope(label.replace("@", "~"))


def jitted(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Returns ``jax.jit`` of a function of arrays."""
    return jax_module().jit(fn)


def result_shapes(fn: Callable[..., Any], arrays: Sequence[Any]) -> Any:
    """Returns the shapes and dtypes of a function's results, without computing them."""
    return jax_module().eval_shape(fn, *arrays)


def with_gradient(
    primal: Callable[..., Any], forward: Callable[..., Any], backward: Callable[..., Any]
) -> Callable[..., Any]:
    """Returns ``primal(*arrays)`` with a gradient of its own.

    Args:
        primal: function of arrays.
        forward: function that returns the result and the residuals.
        backward: ``(residuals, cotangent) -> gradients``, one per array.
    """
    function = jax_module().custom_vjp(primal)
    function.defvjp(forward, backward)
    return function


def varying_alike(arrays: Sequence[Any]) -> list[Any]:
    """Returns the arrays with each marked as different on every device on which one of them is.

    Inside of ``shard_map`` a function with a gradient of its own gives every array's gradient per device; JAX sums it
    over the devices that share the array at the place where the mark is undone.
    """
    jax = jax_module()
    axes = [_varying_axes(jax.typeof(array)) for array in arrays]
    every = frozenset().union(*axes)
    pairs = zip(arrays, axes, strict=True)
    return [jax.lax.pcast(x, tuple(every - own), to="varying") if every - own else x for x, own in pairs]


def _varying_axes(kind: Any) -> frozenset[Any]:
    """Returns the axes of a mesh along which an array differs; JAX 0.8 has them in another attribute than 0.10."""
    return getattr(getattr(kind, "manual_axis_type", None), "varying", None) or getattr(kind, "vma", frozenset())


def as_jax(array: Any) -> Any:
    """Returns an array as JAX's, if JAX is loaded."""
    jax = jax_module()
    return array if jax is None else jax.numpy.asarray(array)


def as_numpy(array: Any) -> Any:
    """Returns an array of JAX as NumPy's, and any other value unchanged."""
    return np.asarray(array) if is_jax(array) else array


def without_gradient(array: Any) -> Any:
    """Returns the value, as a constant for JAX's gradients."""
    return jax_module().lax.stop_gradient(array) if is_jax(array) else array


def zero_gradient(array: Any) -> Any:
    """Returns the gradient of an array without one: zeros, of dtype float0 for integers."""
    jax = jax_module()
    floating = jax.numpy.issubdtype(array.dtype, jax.numpy.inexact)
    return jax.numpy.zeros(array.shape, array.dtype) if floating else np.zeros(array.shape, jax.dtypes.float0)
