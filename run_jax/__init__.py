"""JAX as an engine: an execution context on its arrays, and StableHLO modules compiled by XLA.

This package loads JAX into the process.

>>> import jax
>>> from run_jax import jax_function
>>> cube = jax_function(lambda ctx, x: ctx.ops.mul(ctx.ops.mul(x, x), x))
>>> float(jax.jit(jax.grad(cube, argnums=1))({}, 2.0))
12.0
"""

from run_jax import _contract, _elementwise, _indexing, _packed, _packed_cache, _packed_experts, _reduce, _shape
from run_jax._context import JaxExecutionContext, require_width
from run_jax._devices import jax_devices
from run_jax._engine import StableHloFunction
from run_jax._function import arrays_of, jax_function, parameter_arrays
from run_jax._rules import RULES, computes
from run_jax._tensor import JaxTensor

# Imported for their rules.
del _contract, _elementwise, _indexing, _packed, _packed_cache, _packed_experts, _reduce, _shape
