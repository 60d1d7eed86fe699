"""Composites with a JAX function that keeps less for the gradient than the ops."""

from collections.abc import Callable
from typing import Any, Final

import jax

from lang_core import as_dtype
from run_jax._rules import convert
from run_jax._tensor import JaxTensor

# ``rule(context, body, *operands, *attributes)``; it may call the body.
COMPOSITES: Final[dict[str, Callable[..., Any]]] = {}


def _along(function: Callable[..., Any], context: Any, x: Any, axis: int) -> Any:
    tensor: JaxTensor = context.tensor(x)
    wide = convert(tensor.data, tensor.dtype.accumulation)
    return JaxTensor(tensor.spec, convert(function(wide, axis=axis), tensor.dtype))


def _applies(x: Any, axis: int) -> bool:
    """Returns whether a call is plain: others are left to the ops, which report errors."""
    return as_dtype(x.dtype).is_floating and 0 not in x.shape and -x.ndim <= axis < x.ndim


def _softmax(context: Any, body: Callable[..., Any], x: Any, where: Any, axis: int) -> Any:
    if where is not None or not _applies(x, axis):
        return body(x, where, axis)
    return _along(jax.nn.softmax, context, x, axis)


def _log_softmax(context: Any, body: Callable[..., Any], x: Any, axis: int) -> Any:
    return _along(jax.nn.log_softmax, context, x, axis) if _applies(x, axis) else body(x, axis)


def _relu(context: Any, body: Callable[..., Any], x: Any) -> Any:
    """Returns max(x, 0) with the derivative 0 at 0; the derivative of a maximum is half there."""
    tensor: JaxTensor = context.tensor(x)
    return JaxTensor(tensor.spec, jax.nn.relu(tensor.data)) if tensor.dtype.is_floating else body(x)


COMPOSITES.update({"softmax": _softmax, "log_softmax": _log_softmax, "relu": _relu})
