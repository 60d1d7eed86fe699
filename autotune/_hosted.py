"""JAX's arrays for what computes with NumPy's: kernels that are written in ``ctx.ops``."""

from collections.abc import Callable
from typing import Any

from autotune._environment import environment_of
from autotune._foreign import HOST_KINDS, as_jax, as_numpy, is_jax, is_tracer, jax_module
from autotune._kernel import Kernel, takes_context, variant
from autotune._specs import arrays_of, map_arrays


def hosted(
    kernel: Kernel[Any, Any], args: tuple[Any, ...], kwargs: dict[str, Any], method: str | None
) -> tuple[tuple[Any, ...], dict[str, Any], bool]:
    """Arguments with NumPy arrays in place of JAX's, and whether there were any.

    Only for a kernel that takes a context, which does not record, and only if every array has data: then the call runs
    where NumPy does, and its configuration is chosen for that.
    """
    if jax_module() is None or all(type(each) in HOST_KINDS for each in (*args, *kwargs.values())):
        return args, kwargs, False
    arrays = arrays_of((args, kwargs))
    if not any(map(is_jax, arrays)) or any(map(is_tracer, arrays)):
        return args, kwargs, False
    ctx = kwargs.get("ctx")
    found = variant(kernel, "run", environment_of(arrays).platform, method)
    if (ctx is not None and ctx.isRecording) or not takes_context(getattr(found, "__func__", found)):
        return args, kwargs, False
    return (*map_arrays(as_numpy, (args, kwargs)), True)


def with_jax_arrays(function: Callable[..., Any], arrays: tuple[Any, ...]) -> Any:
    """Calls a function of NumPy arrays; where some are JAX's, its results are, too."""
    found = function(*map(as_numpy, arrays))
    return map_arrays(as_jax, found) if any(map(is_jax, arrays)) else found
