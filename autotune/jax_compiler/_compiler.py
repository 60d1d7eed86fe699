"""Kernels compiled by JAX."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from autotune import CompileRequest, Environment, environment_of, map_arrays
from lang_core import EagerTensor, as_dtype, plain_bools
from run_jax import JaxExecutionContext, require_width


class JaxCompiler:
    """Compiler of kernels with ``jax.jit``; those in ``ctx.ops`` run in a context on JAX's arrays.

    Attributes:
        name: ``jax``.
    """

    name = "jax"

    def environment(self, arrays: Sequence[Any] = ()) -> Environment:
        """Returns the device that JAX uses for the arrays, with its versions and flags."""
        ours = [array for array in arrays if isinstance(array, jax.Array)]
        return environment_of(ours or [jnp.zeros(())])

    def context(self) -> JaxExecutionContext:
        """Returns the context in which a kernel in ``ctx.ops`` computes on JAX's arrays."""
        return JaxExecutionContext()

    def compile(self, request: CompileRequest) -> Callable[..., Any]:
        """Returns a function of arrays of NumPy or JAX, to which JAX's transformations apply, and of eager tensors.

        It gives NumPy's arrays for NumPy's alone if the kernel is written in ``ctx.ops``, else JAX's.
        """
        if not request.takes_context:
            alone = jax.jit(request.run_in_jax)
            return lambda *arrays: alone(*map(_data, arrays))
        function = jax.jit(lambda *arrays: request.run_in_jax(*arrays, ctx=self.context()))

        def run(*values: Any) -> Any:
            arrays = tuple(map(_data, values))
            if any(isinstance(array, jax.Array) for array in arrays):
                return function(*arrays)
            for array in arrays:  # jit would take 64 bits for 32
                require_width(as_dtype(array.dtype))
            plain = [plain_bools(array) if isinstance(array, np.ndarray) else array for array in arrays]
            return map_arrays(np.asarray, function(*plain))

        return run


def _data(value: Any) -> Any:
    """Returns the array of an eager tensor, which JAX does not know, and any other value unchanged."""
    return value.data if isinstance(value, EagerTensor) else value
