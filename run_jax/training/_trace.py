"""Tracing of a function without data."""

from collections.abc import Callable, Mapping
from typing import Any

import jax

from lang_core import TensorSpec
from run_jax import jax_function


def trace(fn: Callable[..., Any], parameters: Mapping[str, TensorSpec], *specs: TensorSpec) -> None:
    """Calls ``fn(ctx, *tensors)`` once with a context of JAX and tensors without data; nothing is computed.

    Args:
        fn: module, entry point, or function of a context and tensors.
        parameters: specs of the parameters by path.
        *specs: specs of the tensors.
    """
    shapes = {path: _shape(spec) for path, spec in parameters.items()}
    jax.eval_shape(jax_function(fn), shapes, *map(_shape, specs))


def _shape(spec: TensorSpec) -> Any:
    return jax.ShapeDtypeStruct(spec.shape, spec.dtype.numpy)
