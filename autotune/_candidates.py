"""What is timed for a candidate: the kernel's method with the configuration, and its gradient where asked."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from autotune._entry import OK, AutotuneData, Measurement
from autotune._foreign import is_jax, jitted
from autotune._invocation import Invocation
from autotune._kernel import Kernel, has_gradient, takes_context, variant
from autotune._policy import AutotunePolicy
from autotune._specs import arrays_of, map_arrays
from autotune._tuner import Tuner
from lang_core import EagerExecutionContext, Tensor


def bound_method(
    kernel: Kernel[Any, Any], name: str, platform: str, method: str | None, ctx: Any = None
) -> Callable[..., Any]:
    """A kernel's method, most specific variant, with a context where it takes one: the given one, else an eager one."""
    found = variant(kernel, name, platform, method)
    function = getattr(found, "__func__", found)
    if not takes_context(function):
        return found
    return lambda *args, **kwargs: found(*args, **{"ctx": ctx or EagerExecutionContext(), **kwargs})


def tune_call(
    tuner: Tuner[Any],
    inv: Invocation[Any, Any],
    kernel: Kernel[Any, Any],
    candidates: Sequence[Any],
    failures: Mapping[str, str],
    policy: AutotunePolicy,
) -> AutotuneData[Any]:
    """Tunes one call with the kernel's own candidates; its heuristic configuration is the reference."""
    platform = inv.where().platform
    make = inv.candidate_runner or candidate_maker(inv, kernel, policy.validate_backward)
    custom = getattr(type(tuner), "autotune", None) is not Tuner.autotune
    if custom or not hasattr(tuner, "tune"):  # a tuner of one's own, which knows candidates and nothing else
        return _of_foreign(tuner, make, inv, candidates)
    try:
        reference = variant(kernel, "heuristic_cfg", platform, inv.method)(inv)
    except NotImplementedError:
        reference = None
    return tuner.tune(
        make,
        inv.args,
        dict(inv.kwargs),
        candidates,
        reference=reference,
        known_failures=failures,
        tolerance=kernel.tolerance,
        bit_exact=policy.bit_exact,
    )


def _of_foreign(tuner: Any, make: Any, inv: Invocation[Any, Any], candidates: Sequence[Any]) -> AutotuneData[Any]:
    from_it = tuner.autotune(make, inv.args, dict(inv.kwargs), candidates)
    data: AutotuneData[Any] = AutotuneData([])
    if from_it is not None:
        data.measurements.append(Measurement(from_it, float("nan"), OK, "chosen by a tuner that tells no times"))
        data.best = data.measurements[0]
    return data


def candidate_maker(
    inv: Invocation[Any, Any], kernel: Kernel[Any, Any], backward: bool = False
) -> Callable[[Any], Callable[..., Any]]:
    """A function from a configuration to what is timed for it."""
    platform, method = inv.where().platform, inv.method
    jax = any(is_jax(array) for array in arrays_of((inv.args, dict(inv.kwargs))))

    def make(cfg: Any) -> Callable[..., Any]:
        if backward and has_gradient(kernel, platform, method):
            plain = _with_backward(kernel, platform, method, cfg)
        else:
            run = bound_method(kernel, "run", platform, method)

            def plain(*args: Any, **kwargs: Any) -> Any:
                return run(*args, cfg=cfg, **kwargs)

        return _jitted_once(plain) if jax else plain

    return make


def _with_backward(kernel: Kernel[Any, Any], platform: str, method: str | None, cfg: Any) -> Callable[..., Any]:
    forward = bound_method(kernel, "fwd_with_residuals", platform, method)
    backward = bound_method(kernel, "vjp", platform, method)

    def both(*args: Any, **kwargs: Any) -> Any:
        output, residuals = forward(*args, cfg=cfg, **kwargs)
        gradients = backward(residuals, output, map_arrays(_ones_like, output), *args, cfg=cfg, **kwargs)
        return output, tuple(each for each in gradients if each is not None)

    return both


def _ones_like(array: Any) -> Any:
    if is_jax(array):
        return array * 0 + 1
    data = array.numpy() if isinstance(array, Tensor) else array
    return np.ones_like(data)


def _jitted_once(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compiled by JAX at the first call, as a function of the arrays; what is static is the same in every call."""
    compiled: list[Callable[..., Any]] = []

    def call(*args: Any, **kwargs: Any) -> Any:
        if not compiled:

            def of_arrays(arrays: list[Any]) -> Any:
                given = iter(arrays)
                inside, named = map_arrays(lambda _: next(given), (args, kwargs))
                return function(*inside, **named)

            compiled.append(jitted(of_arrays))
        return compiled[0](arrays_of((args, kwargs)))

    return call
