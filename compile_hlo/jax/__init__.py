"""JAX's own runtime: kernels by ``jax.jit``, and StableHLO modules, as a second engine beside IREE's.

This package loads JAX into the process; nothing else of ``compile_hlo`` does.
"""

from compile_hlo.jax._compiler import JaxCompiler
from compile_hlo.jax._engine import StableHloFunction
from lang_core.kernels import register_compiler

register_compiler("jax", JaxCompiler)

__all__ = ["JaxCompiler", "StableHloFunction"]
