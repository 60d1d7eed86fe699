"""Compilers as executors see them, and the registry of compilers by name."""

from autotune.compilers._compiler import (
    CompiledKernel,
    CompileRequest,
    KernelCompiler,
    compile_invocation,
    compile_request,
    compiled_kernel,
    compiler_named,
    register_compiler,
    with_jax_arrays,
)

__all__ = [
    "CompileRequest",
    "CompiledKernel",
    "KernelCompiler",
    "compile_invocation",
    "compile_request",
    "compiled_kernel",
    "compiler_named",
    "register_compiler",
    "with_jax_arrays",
]
