"""Kernels in place of composites: how a model, which is written in ``ctx.ops``, comes to run them."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from autotune._executor import Executor
from autotune.caches import PersistentCache
from autotune.kernel import Environment, Kernel, compile_environment
from autotune.selection import ConfigSelectorChain
from lang_core import EntryPoint, ExecutionContext, Tensor


@dataclass(frozen=True)
class CompositeKernel:
    """How calls of a composite become calls of a kernel.

    Attributes:
        kernel: that computes the same.
        call: is given what the composite's body is given, and returns the kernel's ``(args, kwargs)``; None where a
            call is left to the body.
    """

    kernel: Kernel[Any, Any]
    call: Callable[..., tuple[tuple[Any, ...], dict[str, Any]] | None]


@contextmanager
def using_kernels(
    ctx: ExecutionContext, kernels: Mapping[str, CompositeKernel], executor: Executor | None = None
) -> Iterator[None]:
    """Has kernels run in place of composites, in one context, while a ``with`` block lasts.

    What a model computes stays what it is, within the kernels' tolerance: gradients of composites too, by the rules
    that they have. A kernel's own ops are not replaced again.

    Args:
        ctx: in which the model runs or is recorded.
        kernels: by the composite's name, such as ``autotune.supplied.composite_kernels()``.
        executor: chooses configurations; if None, one that knows the user's persistent cache and measures nothing.

    >>> import numpy as np
    >>> from lang_core import EagerExecutionContext
    >>> from autotune import CompositeKernel, ConfigSelectorChain, Executor, Kernel, profile, using_kernels
    >>> class Halved(Kernel[str, object]):
    ...     op_id = "rms_norm"
    ...     def run(self, x, weight=None, *, cfg, ctx, eps):
    ...         return ctx.ops.rms_norm(x, weight, eps)
    ...     def heuristic_cfg(self, inv):
    ...         return "as it is written"
    >>> ctx, executor = EagerExecutionContext(), Executor(ConfigSelectorChain(policy="heuristics"))
    >>> table = {"rms_norm": CompositeKernel(Halved(), lambda x, weight, eps: ((x, weight), {"eps": eps}))}
    >>> with using_kernels(ctx, table, executor), profile() as calls:
    ...     y = ctx.ops.rms_norm(np.ones((1, 2), np.float32))
    >>> [call.cfg for call in calls]
    ['as it is written']
    """
    chosen = remembering_executor() if executor is None else executor

    def substitute_of(each: CompositeKernel) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        def substitute(body: Callable[..., Any]) -> Callable[..., Any]:
            def run(*operands: Any) -> Any:
                call = each.call(*operands)
                if call is None:
                    return body(*operands)
                args, kwargs = call
                with ctx.substituting({}):
                    return chosen(each.kernel, *args, ctx=ctx, **kwargs)

            return run

        return substitute

    with ctx.substituting({name: substitute_of(each) for name, each in kernels.items()}):
        yield


def remembering_executor() -> Executor:
    """An executor that takes what the user's persistent cache has, else heuristics, and measures nothing."""
    return Executor(ConfigSelectorChain(policy="heuristics", persistent=PersistentCache()))


def with_kernels(
    entry_point: EntryPoint,
    kernels: Mapping[str, CompositeKernel],
    executor: Executor,
    environment: Environment | None = None,
) -> EntryPoint:
    """The entry point with kernels in place of its composites, wherever it runs or is recorded.

    Args:
        entry_point: of a model.
        kernels: see ``using_kernels``.
        executor: the same one for every lowering that is to give the same text: it remembers what it chose.
        environment: where the recorded entry point will run; what is chosen is for that.
    """

    def fn(ctx: ExecutionContext, *tensors: Tensor) -> Mapping[str, Tensor]:
        with using_kernels(ctx, kernels, executor):
            if environment is None:
                return entry_point.fn(ctx, *tensors)
            with compile_environment(environment):
                return entry_point.fn(ctx, *tensors)

    return replace(entry_point, fn=fn)
