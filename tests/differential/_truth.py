"""Asks jax, many trials at a time, and compares."""

import dataclasses
from collections.abc import Sequence
from typing import Any, Final

import jax
import numpy as np

from lang_core import DType, EagerExecutionContext, as_dtype
from tests.differential._draw import tiny_of
from tests.differential._trial import Array, Trial

# Most of the time goes into compiling; results do not depend on these.
_QUICKLY: Final[Any] = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}
_EPS: Final = {"f16": 2.0**-10, "bf16": 2.0**-7, "f32": 2.0**-23, "f64": 2.0**-52}
_LARGEST: Final = {"f16": 65504.0, "bf16": 2.0**128 - 2.0**120, "f32": 2.0**128 - 2.0**104, "f64": np.finfo("f8").max}


@dataclasses.dataclass(frozen=True, slots=True)
class Truth:
    """Computes with jax the results of trials, and the sizes relative to which results may be wrong."""

    results: tuple[Array, ...]
    magnitudes: tuple[Array, ...] | None


def truths(trials: Sequence[Trial]) -> list[Truth]:
    """Evaluates the references, in one compiled function."""

    def every(given: Any) -> Any:
        return [
            (_tuple(trial.reference(*arrays)), _tuple(trial.magnitude(*arrays)) if trial.magnitude else None)
            for trial, arrays in zip(trials, given, strict=True)
        ]

    given = [[_given(trial, x) for x in (trial.inputs if trial.given is None else trial.given)] for trial in trials]
    with jax.enable_x64(True):
        results = jax.device_get(jax.jit(every, compiler_options=_QUICKLY)(given))
    return [Truth(*result) for result in results]


def _tuple(results: Any) -> tuple[Any, ...]:
    return tuple(results) if isinstance(results, tuple | list) else (results,)


def _given(trial: Trial, array: Array) -> Array:
    widened = not trial.exact and as_dtype(array.dtype).is_floating
    return array.astype(np.float64) if widened else array


def eagerly(trial: Trial) -> list[Array]:
    """Returns the results of the eager context."""
    ctx = EagerExecutionContext(inputs={f"x{i}": x for i, x in enumerate(trial.inputs)})
    results = _tuple(trial.call(ctx, *([] if trial.named else map(ctx.constant, trial.inputs))))
    for tensor in results:
        data = tensor.numpy()
        assert (tensor.shape, tensor.dtype) == (data.shape, as_dtype(data.dtype)), f"{trial}: the spec is {tensor!r}"
    return [tensor.numpy() for tensor in results]


def difference(trial: Trial, truth: Truth, results: Sequence[Array], steps: float = 0.0) -> str | None:
    """Describes what is wrong with results, None if nothing is; ``steps`` are added to the units in the last place."""
    if len(results) != len(trial.dtypes) or len(results) != len(truth.results):
        return f"{trial}: {len(results)} results, wanted {len(trial.dtypes)}"
    for i, (array, name, wanted) in enumerate(zip(results, trial.dtypes, truth.results, strict=True)):
        dtype = as_dtype(array.dtype)
        if dtype.name != name or array.shape != wanted.shape:
            return f"{trial}: result {i} is {dtype}{list(array.shape)}, wanted {name}{list(wanted.shape)}"
        size = truth.magnitudes[i] if truth.magnitudes else None
        good = _agrees(trial, dtype, array, wanted, size, trial.ulps + steps)
        if not np.all(good):
            at = tuple(int(k) for k in np.argwhere(~np.asarray(good))[0])
            inputs = "; ".join(f"{x.tolist()}" if x.size < 60 else "..." for x in trial.inputs)
            return f"{trial}: result {i} at {at} is {array[at]!r}, wanted {wanted[at]!r}; inputs {inputs}"
    return None


def _agrees(trial: Trial, dtype: DType, results: Array, wanted: Array, size: Array | None, ulps: float) -> Any:
    """Returns for each element whether it is right."""
    if not dtype.is_floating:
        return results == wanted
    if trial.exact:
        bits = f"u{dtype.itemsize}"
        return np.array(results, order="C").view(bits) == np.array(wanted, order="C").view(bits)
    truth = np.asarray(wanted).astype(np.float64)
    with np.errstate(all="ignore"):
        rounded = truth.astype(dtype.numpy).astype(np.float64)
        mine = results.astype(np.float64)
        same = (mine == rounded) & (trial.either_zero | (np.signbit(mine) == np.signbit(rounded)))
        same |= np.isnan(mine) & np.isnan(rounded)
        if dtype.name == "f64":  # jax flushes subnormal results
            same |= (np.abs(mine) < tiny_of(dtype)) & (np.abs(truth) <= tiny_of(dtype))
        if ulps == 0:
            return same
        step = ulps * _EPS[dtype.name]
        room = step * np.maximum(np.abs(truth), tiny_of(dtype))
        if size is not None:
            room = room + step * np.asarray(size).astype(np.float64)
        near = np.isfinite(truth) & (np.abs(mine - truth) <= room)
        overflow = (
            np.isinf(mine) & (np.abs(truth) + room >= _LARGEST[dtype.name]) & (np.signbit(mine) == np.signbit(truth))
        )
        return same | near | overflow
