"""Kernels compiled by IREE; ``autotune.Executor.compile`` loads this package for ``compiler="iree"``.

>>> from autotune.iree_compiler import IreeCompiler
>>> IreeCompiler().name
'iree'
"""

from typing import TYPE_CHECKING

from lang_core import export_lazily

if TYPE_CHECKING:
    from autotune.iree_compiler._cpu_kernels import CpuKernelsKernel, remembered_kernels, tune_kernels
    from autotune.iree_compiler._entry_points import CANDIDATE_FLAGS, CompileFlags, EntryPointKernel
    from autotune.iree_compiler._iree import IreeCompiler, IreeFunction, KernelModule

export_lazily(__name__)
