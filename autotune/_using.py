"""Kernels in place of a model's composites."""

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
    """Kernel that computes a composite.

    Attributes:
        kernel: kernel with the same result.
        call: function from the operands of the composite's body to the kernel's ``(args, kwargs)``; it returns None for
            a call that is left to the body.
    """

    kernel: Kernel[Any, Any]
    call: Callable[..., tuple[tuple[Any, ...], dict[str, Any]] | None]


@contextmanager
def using_kernels(
    ctx: ExecutionContext, kernels: Mapping[str, CompositeKernel], executor: Executor | None = None
) -> Iterator[None]:
    """Runs kernels in place of composites in one context, within a ``with`` block.

    Results stay the same within the kernels' tolerance. Composites keep their gradient rules. A kernel's own ops are
    not replaced again.

    Args:
        ctx: context in which the model runs or is recorded.
        kernels: kernels by the composite's name, such as ``autotune.supplied.composite_kernels()``.
        executor: executor of the kernels; if None, one with the user's persistent cache that measures nothing.

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

    def substitute_of(composite: CompositeKernel) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        def substitute(body: Callable[..., Any]) -> Callable[..., Any]:
            def run(*operands: Any) -> Any:
                call = composite.call(*operands)
                if call is None:
                    return body(*operands)
                args, kwargs = call
                with ctx.substituting({}):
                    return chosen(composite.kernel, *args, ctx=ctx, **kwargs)

            return run

        return substitute

    with ctx.substituting({name: substitute_of(composite) for name, composite in kernels.items()}):
        yield


def remembering_executor() -> Executor:
    """Returns an executor with the user's persistent cache, else heuristics; it measures nothing."""
    return Executor(ConfigSelectorChain(policy="heuristics", persistent=PersistentCache()))


def with_kernels(
    entry_point: EntryPoint,
    kernels: Mapping[str, CompositeKernel],
    executor: Executor,
    environment: Environment | None = None,
) -> EntryPoint:
    """Returns the entry point with kernels in place of its composites, eager and recorded.

    Args:
        entry_point: entry point of a model.
        kernels: kernels by the composite's name; see ``using_kernels``.
        executor: executor of the kernels; lowerings that must give the same text share one, because it remembers.
        environment: environment in which the recorded entry point will run; configurations are chosen for it.
    """

    def fn(ctx: ExecutionContext, *tensors: Tensor) -> Mapping[str, Tensor]:
        with using_kernels(ctx, kernels, executor):
            if environment is None:
                return entry_point.fn(ctx, *tensors)
            with compile_environment(environment):
                return entry_point.fn(ctx, *tensors)

    return replace(entry_point, fn=fn)
