"""Recordings of a kernel that is written in ctx.ops: the gradient of its ops, and the specs of its results."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from autotune.kernel._call import KernelCall
from autotune.kernel._errors import KernelError
from autotune.kernel._specs import ArraySpec, aligned, arrays_of, map_arrays, spec_of
from compile_dag import GraphExecutionContext
from compile_dag.gradient import value_and_gradient
from lang_core import ExecutionContext, Tensor, TensorSpec, TraceEscapeError, as_dtype


def pullback_by_ops(
    call: KernelCall, args: tuple[Any, ...], ctx: ExecutionContext
) -> tuple[Any, Callable[[Any], tuple[Any, ...]]]:
    """Returns the result, and a function from the result's gradient to the arguments', by the gradients of the ops.

    The function runs the kernel again. It returns one entry per argument, None for an argument that is not a floating
    array.

    Args:
        call: call of a kernel that takes a context.
        args: positional arguments.
        ctx: context that computes, or records.

    Raises:
        TraceEscapeError: the context records, and an argument is an array.
        GraphError: when the function is called: an op lacks a gradient.
    """
    given = [_tensor(ctx, array) for array in arrays_of((args, call.kwargs))]
    count = len(arrays_of(args))
    wrt = [i for i in range(count) if given[i].dtype.is_floating]

    def run(inner: ExecutionContext, tensors: tuple[Tensor, ...]) -> Any:
        remaining = iter(tensors)
        inside, kwargs = map_arrays(lambda _: next(remaining), (args, call.kwargs))
        return replace(call, kwargs=kwargs).run(*inside, ctx=inner)

    def weighted(inner: ExecutionContext, *tensors: Tensor) -> Tensor:
        """Computes the sum of the results' elements times their gradients; its gradient is the pullback."""
        results, weights = arrays_of(run(inner, tensors[: len(given)])), tensors[len(given) :]
        if len(results) != len(weights):
            raise KernelError(
                f"{call.kernel.op_id}: its result has {len(results)} arrays, and a gradient of {len(weights)} was given"
            )
        total = inner.ops.constant(0.0, "f32")
        for result, weight in zip(results, weights, strict=True):
            if result.dtype.is_floating:
                wide = result.dtype.accumulation
                product = inner.ops.mul(inner.ops.cast(result, wide), inner.ops.cast(weight, wide))
                total = inner.ops.add(total, inner.ops.sum(product))
        return total

    def pullback(d_output: Any) -> tuple[Any, ...]:
        weights = [_tensor(ctx, array) for array in arrays_of(aligned(d_output, output))]
        _, slopes = value_and_gradient(weighted, wrt)(ctx, *given, *weights)
        by_number = iter([dict(zip(wrt, slopes, strict=True)).get(i) for i in range(count)])
        return tuple(map_arrays(lambda _: next(by_number), arg) if arrays_of(arg) else None for arg in args)

    output = run(ctx, tuple(given))
    return output, pullback


def recorded_specs(run: Callable[..., Any], specs: list[ArraySpec]) -> list[ArraySpec]:
    """Returns the specs of the results of ``run(*tensors, ctx=ctx)`` for tensors of these specs, without computing."""
    ctx = GraphExecutionContext()
    with ctx.recording():
        wanted = [TensorSpec(spec.shape, as_dtype(np.dtype(spec.dtype))) for spec in specs]
        tensors = [ctx.placeholder(f"x{number}", spec) for number, spec in enumerate(wanted)]
        return [spec_of(array) for array in arrays_of(run(*tensors, ctx=ctx))]


def _tensor(ctx: ExecutionContext, array: Any) -> Tensor:
    """Returns an array as a tensor.

    Raises:
        TraceEscapeError: the context records, and the array is none of its values.
    """
    if isinstance(array, Tensor):
        return array
    if isinstance(ctx, GraphExecutionContext) and ctx.isRecording:
        raise TraceEscapeError(
            f"an array, {spec_of(array)}, reached a recorded kernel: make it an input of the recording, or freeze it "
            f"with ctx.ops.constant"
        )
    return ctx.constant(array, as_dtype(array.dtype))
