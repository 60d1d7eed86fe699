"""JAX's runtime as an engine: StableHLO modules compiled by XLA.

This package loads JAX into the process.
"""

from run_jax._engine import StableHloFunction

__all__ = ["StableHloFunction"]
