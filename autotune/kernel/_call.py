"""A call with a chosen configuration, with the kernel's own gradient: in JAX, in a recording, and called directly."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from autotune.kernel._errors import KernelError
from autotune.kernel._jax_arrays import data_of, is_jax, varying_alike, with_gradient, zero_gradient
from autotune.kernel._kernel import Kernel, takes_context, variant
from autotune.kernel._specs import aligned, arrays_of, map_arrays, spec_of
from compile_dag.gradient import ForwardCall, composite_gradient
from lang_core import EagerExecutionContext, Tensor

# The composite under which a recording knows a kernel that has its own gradient.
COMPOSITE: Final = "tapeline.kernel"
"""Name of the composite under which a recording knows a kernel that has its own gradient."""


def bound_method(
    kernel: Kernel[Any, Any], name: str, platform: str, method: str | None, ctx: Any = None
) -> Callable[..., Any]:
    """Returns the most specific variant of a kernel's method.

    A method that takes a context is bound to ``ctx``, or to an eager context if that is None.

    Args:
        kernel: kernel with the method.
        name: name of the method, such as ``run``.
        platform: platform of the devices, such as ``cpu``.
        method: way of execution; its variants are more specific than those of the platform.
        ctx: context that the method is bound to.
    """
    bound = variant(kernel, name, platform, method)
    if not takes_context(bound):
        return bound
    return lambda *args, **kwargs: bound(*args, **{"ctx": ctx or EagerExecutionContext(), **kwargs})


@dataclass(frozen=True, eq=False)
class KernelCall:
    """Call with a chosen configuration: forward, and backward by the kernel's own rule.

    Attributes:
        kernel: kernel that is called.
        cfg: configuration.
        platform: platform, which selects variants.
        method: way of execution, which selects variants.
        kwargs: keyword arguments; arrays among them are not differentiated.
    """

    kernel: Kernel[Any, Any]
    cfg: Any
    platform: str
    method: str | None
    kwargs: dict[str, Any]

    def run(self, *args: Any, ctx: Any = None) -> Any:
        """Returns the result."""
        return bound_method(self.kernel, "run", self.platform, self.method, ctx)(*args, cfg=self.cfg, **self.kwargs)

    def forward(self, *args: Any, ctx: Any = None) -> tuple[Any, Any]:
        """Returns the result and the residuals.

        Raises:
            KernelError: the kernel does not return these two.
        """
        method = bound_method(self.kernel, "fwd_with_residuals", self.platform, self.method, ctx)
        pair = method(*args, cfg=self.cfg, **self.kwargs)
        if not isinstance(pair, tuple) or len(pair) != 2:
            raise KernelError(
                f"{self.kernel.op_id}: fwd_with_residuals gave {type(pair).__name__}: return (output, residuals)"
            )
        return pair

    def backward(self, residuals: Any, output: Any, d_output: Any, *args: Any, ctx: Any = None) -> tuple[Any, ...]:
        """Returns one gradient per argument; None for an argument without one.

        Raises:
            KernelError: the number of gradients, or a shape, is not that of the arguments.
        """
        method = bound_method(self.kernel, "vjp", self.platform, self.method, ctx)
        d_output = aligned(d_output, output)
        gradients = method(residuals, output, d_output, *args, cfg=self.cfg, **self.kwargs)
        if not isinstance(gradients, tuple | list) or len(gradients) != len(args):
            many = isinstance(gradients, tuple | list)
            count = f"{len(gradients)} gradients" if many else f"a {type(gradients).__name__}"
            raise KernelError(
                f"{self.kernel.op_id}: vjp gave {count} for {len(args)} positional arguments: return a tuple with one "
                f"for each, None for those without one"
            )
        gradients = tuple(map(aligned, gradients, args))
        for number, (gradient, argument) in enumerate(zip(gradients, args, strict=True)):
            ours, theirs = arrays_of(gradient), arrays_of(argument)
            if gradient is not None and len(ours) != len(theirs):
                raise KernelError(
                    f"{self.kernel.op_id}: vjp gave {len(ours)} arrays for argument {number}, which has {len(theirs)}: "
                    f"return its structure, or None for no gradient"
                )
            for one, other in zip(ours, theirs, strict=False):
                if spec_of(one).shape != spec_of(other).shape:
                    raise KernelError(
                        f"{self.kernel.op_id}: vjp gave a gradient {spec_of(one)} for argument {number}, which is "
                        f"{spec_of(other)}: it must have the argument's shape"
                    )
        return gradients


def traced(run: Callable[..., Any], args: tuple[Any, ...], ctx: Any) -> Any:
    """Returns ``run(*args, ctx=ctx)`` of arrays of JAX; a context on these gets them as tensors."""
    if ctx is None:
        return run(*args)
    return map_arrays(data_of, run(*map_arrays(ctx.tensor, args), ctx=ctx))


def run_in_jax(call: KernelCall, args: tuple[Any, ...], ctx: Any = None) -> Any:
    """Runs a call so that ``jax.grad`` uses the kernel's gradient, with respect to every array in ``args``.

    Arrays in ``kwargs`` are not differentiated, by the contract of ``vjp``.

    Args:
        call: call with a chosen configuration.
        args: arguments with arrays of JAX.
        ctx: context on JAX's arrays, for a kernel that is written in ``ctx.ops``.
    """
    leaves = arrays_of(args)

    def rebuilt(arrays: tuple[Any, ...]) -> tuple[Any, ...]:
        remaining = iter(arrays)
        return map_arrays(lambda _: next(remaining), args)

    def primal(*arrays: Any) -> Any:
        return traced(call.run, rebuilt(arrays), ctx)

    def forward(*arrays: Any) -> Any:
        output, residuals = traced(call.forward, rebuilt(arrays), ctx)
        return output, (arrays, output, residuals)

    def backward(saved: Any, d_output: Any) -> tuple[Any, ...]:
        arrays, output, residuals = saved
        arguments = rebuilt(arrays)
        gradients = traced(call.backward, (residuals, output, d_output, *arguments), ctx)
        results: list[Any] = []
        for gradient, argument in zip(gradients, arguments, strict=True):
            if gradient is None:
                results += [zero_gradient(array) for array in arrays_of(argument)]
            else:
                pairs = zip(arrays_of(gradient), arrays_of(argument), strict=True)
                results += [_in_dtype(one, array) for one, array in pairs]
        return tuple(results)

    return with_gradient(primal, forward, backward)(*varying_alike(leaves))


def _in_dtype(gradient: Any, argument: Any) -> Any:
    return gradient.astype(argument.dtype) if is_jax(argument) and gradient.dtype != argument.dtype else gradient


def value_and_pullback(call: KernelCall, args: tuple[Any, ...], ctx: Any = None) -> tuple[Any, Callable[..., Any]]:
    """Returns the result, and a function from the result's gradient to the arguments'."""
    output, residuals = call.forward(*args, ctx=ctx)
    return output, lambda d_output: call.backward(residuals, output, d_output, *args, ctx=ctx)


@composite_gradient(COMPOSITE)
def kernel_gradient(forward: ForwardCall, *cotangents: Tensor | None) -> Sequence[Callable[[], Tensor | None]]:
    """Applies the kernel's ``vjp``, after computing its residuals again."""
    call: KernelCall = forward.attributes[0]
    computed: list[tuple[Any, ...]] = []

    def gradients() -> tuple[Any, ...]:
        if not computed:
            output, residuals = call.forward(*forward.inputs, ctx=forward.ctx)
            complete = [
                forward.zeros_like(result) if cotangent is None else cotangent
                for cotangent, result in zip(cotangents, forward.results, strict=True)
            ]
            d_output = tuple(complete) if isinstance(output, tuple) else complete[0]
            computed.append(call.backward(residuals, output, d_output, *forward.inputs, ctx=forward.ctx))
        return computed[0]

    return [lambda i=i: gradients()[i] for i in range(len(forward.inputs))]
