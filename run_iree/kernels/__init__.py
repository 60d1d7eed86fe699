"""Kernels for CPUs, in MLIR's vector dialect, in place of helper functions (docs/design/0015-cpu-kernels.md).

``module.mlir`` stays portable StableHLO: kernels are put into the text that is given to the compiler.
"""

from run_iree.kernels._catalogue import CpuKernels
from run_iree.kernels._substitute import Substitution

__all__ = ["CpuKernels", "Substitution"]
