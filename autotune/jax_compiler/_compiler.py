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
    """``jax.jit`` of kernels that compute with JAX; of those in ``ctx.ops``, their StableHLO on JAX's runtime.

    Attributes:
        name: ``jax``.
    """

    name = "jax"

    def environment(self, arrays: Sequence[Any] = ()) -> Environment:
        """The device that JAX would take, its versions and flags."""
        ours = [each for each in arrays if isinstance(each, jax.Array)]
        return environment_of(ours or [jnp.zeros(())])

    def compile(self, request: CompileRequest) -> Callable[..., Any]:
        """A function of arrays, NumPy's or JAX's. Through ``jax.jit`` it can be differentiated by JAX.

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
