"""CPU kernels in MLIR's vector dialect that take the place of a module's helper functions (README.md).

``module.mlir`` stays portable StableHLO: kernels are put into the text that is given to the compiler.
"""

from run_iree.kernels._catalogue import CpuKernels
from run_iree.kernels._instruction_sets import InstructionSet, missing_features, register_instruction_set
from run_iree.kernels._lines import Buffer
from run_iree.kernels._registered import KernelBuilder, RegisteredKernel, register_kernel, registered_kernels
from run_iree.kernels._substitute import Substitution
from run_iree.kernels._text import Arrangement, CpuKernel
