"""Compilers as executors see them, and the registry of compilers by name."""

from autotune.compilers._compiler import (
    CompiledCall,
    CompiledKernel,
    CompileRequest,
    KernelCompiler,
    compile_invocation,
    compile_request,
    compiled_call,
    compiler_named,
    register_compiler,
    serves,
    traced_context,
    with_jax_arrays,
)
