"""Kernels compiled by JAX."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from autotune import CompileRequest, Environment, environment_of, with_jax_arrays
from autotune.iree_compiler import KernelModule
from run_jax import StableHloFunction


class JaxCompiler:
    """Compiler of kernels with JAX: ``jax.jit``, or for kernels in ``ctx.ops`` their StableHLO on JAX's runtime.

    Attributes:
        name: ``jax``.
    """

    name = "jax"

    def environment(self, arrays: Sequence[Any] = ()) -> Environment:
        """Returns the device that JAX uses for the arrays, with its versions and flags."""
        ours = [array for array in arrays if isinstance(array, jax.Array)]
        return environment_of(ours or [jnp.zeros(())])

    def compile(self, request: CompileRequest) -> Callable[..., Any]:
        """Returns a function of arrays of NumPy or JAX. JAX can differentiate that of a kernel that computes with JAX.

        Raises:
            VerificationError: XLA refuses the kernel's StableHLO.
        """
        if not request.takes_context:
            return jax.jit(request.run_in_jax)
        module = KernelModule(request)
        function = StableHloFunction(module.text)

        def run(*arrays: Any) -> Any:
            return with_jax_arrays(lambda *given: module.in_form(function(*map(np.asarray, given))), arrays)

        return run
