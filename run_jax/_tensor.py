"""Tensors with JAX arrays as data."""

from typing import Any

import jax
import jax.core
import numpy as np
from jax.extend.core import find_top_trace

from lang_core import OpError, Tensor, TensorSpec, TraceEscapeError, as_dtype


def is_traced(value: Any) -> bool:
    """Returns whether JAX traces an array, which then lacks data."""
    return isinstance(value, jax.core.Tracer)


def is_tracing_now() -> bool:
    """Returns whether JAX traces in this thread: inside of ``jit``, ``grad``, ``vmap``, ``scan`` or ``shard_map``."""
    return type(find_top_trace(())).__name__ != "EvalTrace"


class JaxTensor(Tensor):
    """Tensor with an array of JAX, or a tracer of it, of exactly the spec's shape and dtype.

    It is a pytree of one array, so functions of ``jax.jit``, ``jax.grad`` or ``lax.scan`` may take and give it.

    Attributes:
        data: the array.
        roots: traced arrays that the value is computed from, as bits of its context; 0 if none is known.
    """

    __slots__ = ("data", "roots")

    def __init__(self, spec: TensorSpec, data: Any, roots: int = 0) -> None:
        self.spec = spec
        self.data = data
        self.roots = roots

    def numpy(self) -> np.ndarray[Any, Any]:
        """Returns the data on the host, of the tensor's shape.

        Raises:
            TraceEscapeError: JAX traces the value, so it lacks data.
        """
        if is_traced(self.data):
            raise TraceEscapeError(
                f"numpy() was asked of {self.spec!r} while JAX traces it (jit, grad, vmap): it has no data yet. "
                f"Compute with ctx.ops, return the tensor and read it outside, or ask ctx.isRecording before a path "
                f"that needs data"
            )
        return np.asarray(self.data)

    def __jax_array__(self) -> Any:
        return self.data

    def __repr__(self) -> str:
        return f"JaxTensor({self.spec!r}, {self.data!r})"


def tensor_of(array: Any) -> JaxTensor:
    """Returns a tensor that holds an array of JAX.

    Raises:
        OpError: the array's dtype is not one of the op table's.
    """
    try:
        dtype = as_dtype(array.dtype)
    except OpError as error:
        raise OpError(f"an array of JAX, {array.dtype}{list(array.shape)}, is no operand of ops: {error}") from None
    if getattr(array, "weak_type", False):  # the table's dtypes are strong: a weak one would promote differently
        array = jax.lax.convert_element_type(array, dtype.numpy)
    return JaxTensor(TensorSpec(tuple(array.shape), dtype), array)


def _unflattened(_: None, children: Any) -> JaxTensor:
    """Rebuilds a tensor; JAX also calls this with placeholders, which lack a shape."""
    (data,) = children
    known = hasattr(data, "shape") and isinstance(getattr(data, "dtype", None), np.dtype)
    return JaxTensor(TensorSpec(tuple(data.shape), as_dtype(data.dtype)) if known else TensorSpec((), "bool"), data)


jax.tree_util.register_pytree_node(JaxTensor, lambda tensor: ((tensor.data,), None), _unflattened)
