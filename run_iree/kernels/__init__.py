"""Kernels for CPUs, in MLIR's vector dialect, in place of helper functions (docs/design/0015-cpu-kernels.md).

``module.mlir`` stays portable StableHLO: kernels are put into the text that is given to the compiler.
"""

from run_iree.kernels._substitute import CpuKernels, Substitution

__all__ = ["CpuKernels", "Substitution"]
