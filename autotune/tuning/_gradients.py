"""Check of a kernel's own gradient against that of its ops, or of JAX."""

import warnings
from typing import Any, Final

import numpy as np

from autotune.kernel import (
    GradientWarning,
    Invocation,
    Kernel,
    KernelCall,
    KernelError,
    arrays_of,
    as_jax,
    as_numpy,
    is_jax,
    jax_module,
    map_arrays,
    pullback_by_ops,
    run_takes_context,
    trial,
    value_and_pullback,
)
from autotune.tuning._agreement import disagreement
from lang_core import EagerExecutionContext, GraphError, Tensor, as_dtype

# Elements of all arguments above which the check would take longer than the tuning.
_MOST: Final = 1 << 20
# Allowed difference, relative to the largest value: the two sum in other orders, and a kernel may round in between.
_TOLERANCES: Final = {"float64": 1e-8, "float32": 2e-3, "float16": 5e-2, "bfloat16": 2e-1}


def check_gradient(kernel: Kernel[Any, Any], inv: Invocation[Any, Any], cfg: Any) -> None:
    """Compares the gradient that a kernel has of its own with that of its ``run``, for one configuration.

    Kernels that compute with NumPy only, calls with large arrays, and calls without a gradient of the kernel or of an
    op are not checked. Any other failure of the comparison is a ``GradientWarning``.

    Raises:
        KernelError: they differ, or the kernel's own has another structure than its arguments.
    """
    kwargs = {name: value for name, value in inv.kwargs.items() if name != "ctx"}
    arrays = arrays_of((inv.args, kwargs))
    if sum(int(np.prod(array.shape)) for array in arrays) > _MOST:
        return
    try:
        with trial(()):
            pair = _gradients(kernel, inv, cfg, kwargs)
    except (NotImplementedError, GraphError):
        return
    except KernelError:
        raise
    except Exception as error:  # noqa: BLE001 - the kernel's methods are the user's, and JAX has errors of many kinds
        warnings.warn(
            f"kernel {kernel.op_id!r}: its vjp was not compared with the gradient of its run: "
            f"{type(error).__name__}: {error}",
            GradientWarning,
            stacklevel=2,
        )
        return
    for number, (own, wanted) in enumerate(zip(*pair, strict=True) if pair else ()):
        if own is None or wanted is None:
            continue
        for one, other in zip(arrays_of(own), arrays_of(wanted), strict=False):
            tolerance = _TOLERANCES.get(np.asarray(other).dtype.name)
            wrong = "" if tolerance is None else disagreement(np.asarray(one), np.asarray(other), tolerance)
            if wrong:
                raise KernelError(
                    f"kernel {kernel.op_id!r}: its vjp is not the gradient of its run: argument {number}: {wrong}: "
                    f"correct fwd_with_residuals and vjp, or tune without the check by policy_override(chain, "
                    f"validate_backward=False)"
                )


def _gradients(kernel: Kernel[Any, Any], inv: Invocation[Any, Any], cfg: Any, kwargs: dict[str, Any]) -> Any:
    """Returns the gradients by the kernel's rule and those to compare with; None if there are none."""
    platform = inv.where().platform
    if run_takes_context(kernel, platform, inv.method):
        ctx = EagerExecutionContext()

        def tensor(array: Any) -> Tensor:
            data = np.asarray(as_numpy(array))
            return ctx.constant(data, as_dtype(data.dtype))

        args, named = map_arrays(tensor, (tuple(inv.args), kwargs))
        call = KernelCall(kernel, cfg, platform, inv.method, named)
        output, own = value_and_pullback(call, args, ctx)
        d_output = map_arrays(lambda array: tensor(_ramp(array)), output)
        return own(d_output), pullback_by_ops(call, args, ctx)[1](d_output)
    arrays = arrays_of((inv.args, kwargs))
    if not arrays or not all(map(is_jax, arrays)):
        return None
    call = KernelCall(kernel, cfg, platform, inv.method, kwargs)
    output, own = value_and_pullback(call, tuple(inv.args))
    d_output = map_arrays(lambda array: as_jax(_ramp(array)), output)
    return own(d_output), jax_module().vjp(call.run, *inv.args)[1](d_output)


def _ramp(array: Any) -> np.ndarray[Any, Any]:
    """Returns a gradient of a result, with different elements; zeros for integers."""
    dtype = array.dtype.numpy if isinstance(array, Tensor) else np.dtype(array.dtype)
    ramp = np.cos(np.arange(int(np.prod(array.shape)), dtype=np.float32)).reshape(tuple(array.shape))
    return ramp.astype(dtype) if dtype.kind not in "iub" else np.zeros(ramp.shape, dtype)
