"""Kernels compiled by JAX; ``autotune.Executor.compile`` loads this package for ``compiler="jax"``.

It loads JAX into the process; nothing else of ``autotune`` does.
"""

from autotune import register_compiler
from autotune.jax_compiler._compiler import JaxCompiler

register_compiler("jax", JaxCompiler)

__all__ = ["JaxCompiler"]
