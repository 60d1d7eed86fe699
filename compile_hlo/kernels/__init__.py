"""Kernels compiled by IREE: ``lang_core.kernels.Executor.compile`` finds the compiler here.

>>> from compile_hlo.kernels import IreeCompiler
>>> IreeCompiler().name
'iree'
"""

from functools import cache

from compile_hlo.kernels._entry_points import CANDIDATE_FLAGS, CompileFlags, EntryPointKernel
from compile_hlo.kernels._iree import IreeCompiler, IreeFunction, KernelModule
from lang_core.kernels import register_compiler

register_compiler("iree", cache(IreeCompiler))

__all__ = ["CANDIDATE_FLAGS", "CompileFlags", "EntryPointKernel", "IreeCompiler", "IreeFunction", "KernelModule"]
