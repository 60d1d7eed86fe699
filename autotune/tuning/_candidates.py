"""Functions to time for candidates: the kernel's method with the configuration, and its gradient if asked."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from autotune.caches import OK, AutotuneData, Measurement
from autotune.kernel import (
    Invocation,
    Kernel,
    arrays_of,
    as_jax,
    bound_method,
    checked_cfg,
    checked_tolerance,
    has_gradient,
    heuristic_of,
    is_jax,
    jitted,
    map_arrays,
    trial,
)
from autotune.tuning._arguments import Arguments
from autotune.tuning._gradients import check_gradient
from autotune.tuning._tuner import Tuner
from lang_core import Tensor, checked_choices


@checked_choices
def tune_call(
    tuner: Tuner[Any],
    inv: Invocation[Any, Any],
    kernel: Kernel[Any, Any],
    candidates: Sequence[Any],
    failures: Mapping[str, str],
    *,
    validate_backward: bool = False,
    bit_exact: bool = False,
) -> AutotuneData[Any]:
    """Tunes one call. The kernel's heuristic configuration is the reference.

    Args:
        tuner: tuner that checks and times the candidates.
        inv: call to tune.
        kernel: kernel of the call.
        candidates: configurations.
        failures: reasons of earlier failures, by ``cfg_name``; these candidates are skipped.
        validate_backward: whether to run the kernel's own gradient, too, once for each candidate, and compare it.
        bit_exact: whether a candidate must give the reference's result bit for bit.

    Raises:
        KernelError: the kernel's own gradient is not that of its ``run``.
    """
    make = inv.candidate_runner or candidate_maker(inv, kernel, validate_backward)
    custom = getattr(type(tuner), "autotune", None) is not Tuner.autotune
    if custom or not hasattr(tuner, "tune"):  # the user's own tuner, which takes candidates and nothing else
        return _by_foreign_tuner(tuner, make, inv, kernel, candidates)
    try:
        reference = heuristic_of(kernel, inv)
    except NotImplementedError:
        reference = None
    if validate_backward and has_gradient(kernel, inv.where().platform, inv.method):
        for cfg in ([] if reference is None else [reference]) or candidates[:1]:
            check_gradient(kernel, inv, cfg)
    return tuner.tune(
        make,
        inv.args,
        dict(inv.kwargs),
        candidates,
        reference=reference,
        known_failures=failures,
        tolerance=checked_tolerance(kernel),
        bit_exact=bit_exact,
    )


def _by_foreign_tuner(
    tuner: Any, make: Any, inv: Invocation[Any, Any], kernel: Kernel[Any, Any], candidates: Sequence[Any]
) -> AutotuneData[Any]:
    arguments = Arguments(inv.args, inv.kwargs)
    args, kwargs = arguments.lent()
    with trial(arguments.values):
        chosen = tuner.autotune(make, args, kwargs, candidates)
    data: AutotuneData[Any] = AutotuneData([])
    if chosen is not None:
        checked_cfg(kernel, chosen, f"the tuner {type(tuner).__name__} chose")
        data.measurements.append(Measurement(chosen, float("nan"), OK, "chosen by a tuner that tells no times"))
        data.best = data.measurements[0]
    return data


def candidate_maker(
    inv: Invocation[Any, Any], kernel: Kernel[Any, Any], backward: bool = False
) -> Callable[[Any], Callable[..., Any]]:
    """Returns a function from a configuration to the function to time for it."""
    platform, method = inv.where().platform, inv.method
    jax = any(is_jax(array) for array in arrays_of((inv.args, dict(inv.kwargs))))

    def make(cfg: Any) -> Callable[..., Any]:
        run = bound_method(kernel, "run", platform, method)

        def plain(*args: Any, **kwargs: Any) -> Any:
            return run(*args, cfg=cfg, **kwargs)

        timed = _jitted_once(plain) if jax else plain
        if not backward or not has_gradient(kernel, platform, method):
            return timed
        both = _with_backward(kernel, platform, method, cfg)
        if not jax:
            return _first_then(both, timed)
        compiled = _jitted_once(both)
        # The function to be timed is compiled at the first call, too.
        return _first_then(lambda *args, **kwargs: (timed(*args, **kwargs), compiled(*args, **kwargs))[1], timed)

    return make


def _first_then(first: Callable[..., Any], later: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a function that calls ``first`` once, for its result to be compared, and then ``later``, to be timed."""
    called: list[bool] = []

    def call(*args: Any, **kwargs: Any) -> Any:
        if called:
            return later(*args, **kwargs)
        called.append(True)
        return first(*args, **kwargs)

    return call


def _with_backward(kernel: Kernel[Any, Any], platform: str, method: str | None, cfg: Any) -> Callable[..., Any]:
    forward = bound_method(kernel, "fwd_with_residuals", platform, method)
    backward = bound_method(kernel, "vjp", platform, method)

    def both(*args: Any, **kwargs: Any) -> Any:
        output, residuals = forward(*args, cfg=cfg, **kwargs)
        gradients = backward(residuals, output, map_arrays(_seed, output), *args, cfg=cfg, **kwargs)
        return output, tuple(gradient for gradient in gradients if gradient is not None)

    return both


def _seed(array: Any) -> Any:
    """Returns a gradient of a result: different for each element, so that a transposed or shared one is noticed."""
    shape = tuple(array.shape)
    dtype = array.dtype.numpy if isinstance(array, Tensor) else array.dtype
    ramp = np.cos(np.arange(int(np.prod(shape)), dtype=np.float32)).reshape(shape)
    seed = ramp.astype(dtype) if np.dtype(dtype).kind not in "iub" else np.zeros(shape, dtype)
    return as_jax(seed) if is_jax(array) else seed


def _jitted_once(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compiles a function with JAX at its first call, as a function of the arrays; static values never change."""
    compiled: list[Callable[..., Any]] = []

    def call(*args: Any, **kwargs: Any) -> Any:
        if not compiled:

            def of_arrays(arrays: list[Any]) -> Any:
                remaining = iter(arrays)
                filled, named = map_arrays(lambda _: next(remaining), (args, kwargs))
                return function(*filled, **named)

            compiled.append(jitted(of_arrays))
        return compiled[0](arrays_of((args, kwargs)))

    return call
