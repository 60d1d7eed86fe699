"""CPU kernels in MLIR's vector dialect that take the place of a module's helper functions (README.md).

``module.mlir`` stays portable StableHLO: kernels are put into the text that is given to the compiler.
"""

from run_iree.kernels._catalogue import CpuKernels
from run_iree.kernels._instruction_sets import missing_features
from run_iree.kernels._substitute import Substitution

__all__ = ["CpuKernels", "Substitution", "missing_features"]
