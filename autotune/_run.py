"""One call of a kernel: prepares arguments, moves arrays to the kernel's device, returns results of the same kind."""

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from autotune.compilers import traced_context
from autotune.kernel import (
    COMPOSITE,
    HOST_KINDS,
    Invocation,
    Kernel,
    KernelCall,
    KernelError,
    arrays_of,
    as_jax,
    as_numpy,
    data_of,
    environment_of,
    has_gradient,
    is_jax,
    is_tracer,
    jax_module,
    map_arrays,
    pullback_by_ops,
    run_in_jax,
    run_takes_context,
    traced,
    value_and_pullback,
    without_gradient,
)
from lang_core import EagerExecutionContext, EagerTensor, ExecutionContext, Tensor


def hosted(
    kernel: Kernel[Any, Any], args: tuple[Any, ...], kwargs: dict[str, Any], method: str | None
) -> tuple[tuple[Any, ...], dict[str, Any], bool]:
    """Converts JAX's arrays to NumPy's for a kernel that NumPy computes.

    This applies to a kernel that takes a context, outside of a recording, if every array has data and the caller did
    not pass a JAX context. Such a call runs in this process, and its configuration is chosen for NumPy.

    Returns:
        Positional arguments, keyword arguments, and whether any array was converted.
    """
    if jax_module() is None or all(type(value) in HOST_KINDS for value in (*args, *kwargs.values())):
        return args, kwargs, False
    arrays = arrays_of((args, kwargs))
    if not any(map(is_jax, arrays)) or any(map(is_tracer, arrays)):
        return args, kwargs, False
    ctx = kwargs.get("ctx")
    computes_elsewhere = ctx is not None and not isinstance(ctx, EagerExecutionContext)
    if computes_elsewhere or not run_takes_context(kernel, environment_of(arrays).platform, method):
        return args, kwargs, False
    return (*map_arrays(as_numpy, (args, kwargs)), True)


def hosted_result(result: Any) -> Any:
    """Converts a result's NumPy arrays to JAX's; tensors of the caller's own context stay."""
    return map_arrays(lambda array: as_jax(array) if isinstance(array, np.ndarray) else array, result)


class Run:
    """Call with a chosen configuration.

    Attributes:
        call: kernel and configuration.
        args: positional arguments.
        ctx: context of the call; if the kernel takes one and the caller gave none, one on JAX's arrays or an eager one.
        jax: whether an argument is an array of JAX, or a tensor with one.
        differentiable: whether the kernel has its own gradient.
    """

    def __init__(self, kernel: Kernel[Any, Any], inv: Invocation[Any, Any], cfg: Any) -> None:
        kwargs = dict(inv.kwargs)
        arrays = arrays_of((inv.args, kwargs))
        self.jax: Final = any(is_jax(data_of(array)) for array in arrays)
        platform = inv.where().platform
        self.ctx: ExecutionContext | None = kwargs.pop("ctx", None)
        own_context = self.ctx is None and run_takes_context(kernel, platform, inv.method)
        if own_context:
            self.ctx = traced_context() if self.jax else EagerExecutionContext()
            self._check_arrays(kernel, arrays)
        self._unwraps = own_context and not any(isinstance(array, Tensor) for array in arrays)
        self._in_jax = self.jax and (self.ctx is None or hasattr(self.ctx, "tensor"))
        if self.jax:
            kwargs = map_arrays(lambda array: without_gradient(data_of(array)), kwargs)
        if self._in_jax and self.ctx is not None:
            kwargs = map_arrays(self.ctx.tensor, kwargs)  # pyright: ignore[reportAttributeAccessIssue]
        self.args: Final = inv.args
        self.call: Final = KernelCall(kernel, cfg, platform, inv.method, kwargs)
        self.differentiable: Final = has_gradient(kernel, platform, inv.method)

    def _check_arrays(self, kernel: Kernel[Any, Any], arrays: list[Any]) -> None:
        tensors = [array for array in arrays if isinstance(array, Tensor) and data_of(array) is array]
        if any(not isinstance(tensor, EagerTensor) for tensor in tensors):
            raise KernelError(
                f"kernel {kernel.op_id!r} was given a recorded value and no context: pass ctx= that records"
            )

    def __call__(self) -> Any:
        if self._in_jax:
            return self._result_in_jax()
        ctx = self.ctx
        if ctx is not None and ctx.isRecording and self.differentiable:
            return ctx.composite(COMPOSITE, self._composite_body, self.args, (self.call,))
        return self.unwrapped(self.call.run(*self.args, ctx=ctx))

    def _result_in_jax(self) -> Any:
        """Runs the call on arrays of JAX; their transformations use the kernel's gradient if it has one."""
        args = map_arrays(data_of, self.args)
        if self.differentiable:
            result = run_in_jax(self.call, args, self.ctx)
        else:
            result = traced(self.call.run, args, self.ctx)
        return result if self.ctx is None or self._unwraps else map_arrays(self.ctx.tensor, result)  # pyright: ignore[reportAttributeAccessIssue]

    def value_and_pullback(self) -> tuple[Any, Callable[..., tuple[Any, ...]]]:
        """Returns the result, and a function from its gradient to the arguments', by the kernel's rule or its ops'.

        Raises:
            KernelError: the kernel lacks its own gradient, and computes without ``ctx.ops``.
        """
        if self.differentiable:
            return value_and_pullback(self.call, self.args, self.ctx)
        if self.ctx is None:
            raise KernelError(f"kernel {self.call.kernel.op_id!r} has no fwd_with_residuals and vjp: give it both")
        return pullback_by_ops(self.call, self.args, self.ctx)

    def _composite_body(self, *inputs: Any) -> Any:
        *args, call = inputs
        result = call.run(*args, ctx=self.ctx)
        if not all(isinstance(value, Tensor) for value in (result if type(result) is tuple else (result,))):
            raise KernelError(
                f"{call.kernel.op_id}: a kernel with its own gradient gives a tensor, or a tuple of tensors, to a "
                f"recording; found {type(result).__name__}"
            )
        return result

    def unwrapped(self, result: Any) -> Any:
        """Returns the result with arrays for tensors, if all arguments were arrays."""
        if not self._unwraps:
            return result
        return map_arrays(lambda array: array.data if isinstance(array, EagerTensor) else data_of(array), result)
