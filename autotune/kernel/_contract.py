"""Checks of the arguments and results of a kernel's methods; the errors have the fix."""

import dataclasses
import inspect
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Any, Final

from autotune.kernel._errors import KernelError
from autotune.kernel._invocation import Invocation
from autotune.kernel._kernel import Kernel, takes_context, variant
from lang_core import ExecutionContext

_KEYWORD: Final = (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def checked_kernel(kernel: Any) -> None:
    """Checks that a value is a kernel that can be called.

    Raises:
        KernelError: it is a class, is not a kernel, or lacks a name.
    """
    if isinstance(kernel, type) and issubclass(kernel, Kernel):
        raise KernelError(f"expected a kernel, found its class {kernel.__name__}: pass {kernel.__name__}()")
    if not isinstance(kernel, Kernel):
        raise KernelError(f"expected a kernel, found {kernel!r}: pass an object of a subclass of autotune.Kernel")
    if not isinstance(kernel.op_id, str) or not kernel.op_id:
        raise KernelError(
            f"{type(kernel).__name__} has the op_id {kernel.op_id!r}: set op_id to a name, or call super().__init__() "
            f"in its __init__, which names it"
        )


def prepared(
    kernel: Kernel[Any, Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Returns the arguments from the kernel's ``prepare``, which gets the context only if it has a ``ctx``.

    Raises:
        KernelError: the kernel or ``ctx`` has the wrong type, or ``prepare`` does not return arguments.
    """
    checked_kernel(kernel)
    ctx = kwargs.pop("ctx", None)
    if ctx is None:
        return checked_arguments(kernel, "prepare", kernel.prepare(*args, **kwargs))
    if not isinstance(ctx, ExecutionContext):
        raise KernelError(f"kernel {kernel.op_id!r}: ctx={ctx!r} is not an ExecutionContext")
    context = {"ctx": ctx} if takes_context(type(kernel).prepare) else {}
    args, kwargs = checked_arguments(kernel, "prepare", kernel.prepare(*args, **context, **kwargs))
    return args, {**kwargs, "ctx": ctx}


def checked_arguments(kernel: Kernel[Any, Any], method: str, returned: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Returns arguments that a method of the kernel returned.

    Raises:
        KernelError: they are not ``(args, kwargs)``.
    """
    pair = type(returned) is tuple and len(returned) == 2
    if not pair or not isinstance(returned[0], tuple | list) or not isinstance(returned[1], Mapping):
        kinds = f"({', '.join(type(value).__name__ for value in returned)})" if type(returned) is tuple else ""
        raise KernelError(
            f"kernel {kernel.op_id!r}: {method} returned {kinds or type(returned).__name__}: return (args, kwargs), a "
            f"tuple and a dict"
        )
    return tuple(returned[0]), dict(returned[1])


def heuristic_of(kernel: Kernel[Any, Any], inv: Invocation[Any, Any]) -> Any:
    """Returns the kernel's heuristic configuration for a call.

    Raises:
        NotImplementedError: the kernel has none.
        KernelError: the method takes other arguments, or does not return a configuration.
    """
    return checked_cfg(kernel, _asked(kernel, "heuristic_cfg", inv), "heuristic_cfg returned")


def candidates_of(kernel: Kernel[Any, Any], inv: Invocation[Any, Any]) -> tuple[Any, ...]:
    """Returns the kernel's candidates for a call.

    Raises:
        NotImplementedError: the kernel has neither candidates nor a heuristic configuration.
        KernelError: the method takes other arguments, or does not return configurations.
    """
    returned = _asked(kernel, "candidate_cfgs", inv)
    if not isinstance(returned, Iterable) or isinstance(returned, str | bytes):
        raise KernelError(
            f"kernel {kernel.op_id!r}: candidate_cfgs returned {returned!r}: return a list of configurations"
        )
    return tuple(checked_cfg(kernel, cfg, "candidate_cfgs returned a list with") for cfg in returned)


def checked_cfg(kernel: Kernel[Any, Any], cfg: Any, source: str) -> Any:
    """Returns a configuration.

    Args:
        kernel: kernel of the configuration.
        cfg: value that should be a configuration.
        source: origin of the value, for the message.

    Raises:
        KernelError: it is None, or not of the kernel's class of configurations.
    """
    kind = kernel.cfg_type
    if cfg is None or (kind is not None and dataclasses.is_dataclass(kind) and not isinstance(cfg, kind)):
        wanted = "a configuration" if kind is None else f"a {kind.__name__}"
        raise KernelError(f"kernel {kernel.op_id!r}: {source} {cfg!r}: expected {wanted}")
    return cfg


def checked_tolerance(kernel: Kernel[Any, Any]) -> float | None:
    """Returns the kernel's tolerance.

    Raises:
        KernelError: it is not a number that can bound a difference.
    """
    value = kernel.tolerance
    if value is not None and (not isinstance(value, int | float) or not value >= 0):
        raise KernelError(f"kernel {kernel.op_id!r}: tolerance={value!r}: expected a number of at least 0, or None")
    return value


def needs_methods(value: Any, argument: str, *names: str) -> None:
    """Checks that an object given for an argument has methods.

    Raises:
        KernelError: it lacks one.
    """
    missing = [name for name in names if not callable(getattr(value, name, None))]
    if missing:
        raise KernelError(
            f"{argument}={value!r} has no method {missing[0]}(): expected an object with {', '.join(names)}"
        )


def _asked(kernel: Kernel[Any, Any], name: str, inv: Invocation[Any, Any]) -> Any:
    method = variant(kernel, name, inv.where().platform, inv.method)
    if not _takes_one(getattr(method, "__func__", method), method is not getattr(method, "__func__", method)):
        raise KernelError(f"kernel {kernel.op_id!r}: {name} takes {inspect.signature(method)}: write {name}(self, inv)")
    return method(inv)


@cache
def _takes_one(function: Callable[..., Any], bound: bool) -> bool:
    try:
        inspect.signature(function).bind(*[None] * (1 + bound))
    except TypeError:
        return False
    return True
