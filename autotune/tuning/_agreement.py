"""Comparison of a candidate's result with the reference's."""

from typing import Any, Final

import numpy as np

from autotune.kernel import aligned, arrays_of, map_arrays, spec_of

# Allowed error by dtype of the result, relative to the largest value: another order of additions may cause it.
_TOLERANCES: Final = {"float64": 1e-10, "float32": 1e-4, "float16": 1e-2, "bfloat16": 3e-2}


def disagreement(result: Any, reference: Any, tolerance: float | None = None, bit_exact: bool = False) -> str:
    """Returns how a result differs from the reference; empty if they agree.

    Args:
        result: result of a candidate: an array, or a tree of arrays and other values.
        reference: result of the reference, of the same structure.
        tolerance: allowed error relative to the largest finite value; by dtype if None.
        bit_exact: whether every bit must be the same.
    """
    result = aligned(result, reference)
    ours, theirs = arrays_of(result), arrays_of(reference)
    if len(ours) != len(theirs):
        return f"{len(ours)} results, the reference has {len(theirs)}"
    form, wanted = (map_arrays(lambda _: "array", tree) for tree in (result, reference))
    if form != wanted and repr(form) != repr(wanted):
        return f"{form!r}, the reference has {wanted!r}"
    for number, (a, b) in enumerate(zip(ours, theirs, strict=True)):
        which = f"result {number}: " if len(theirs) > 1 else ""
        if spec_of(a) != spec_of(b):
            return f"{which}{spec_of(a)}, the reference has {spec_of(b)}"
        wrong = _wrong(np.asarray(a), np.asarray(b), tolerance, bit_exact)
        if wrong:
            return which + wrong
    return ""


def incomparable(result: Any) -> str:
    """Returns the reason why results cannot be compared with this one: an array is NaN everywhere.

    Empty if they can.
    """
    for number, array in enumerate(arrays_of(result) or [result]):
        data = np.asarray(array)
        floating = data.dtype.kind in "fc" or data.dtype.name in _TOLERANCES
        if data.size and floating and np.isnan(data).all():
            return f"result {number}: every value is NaN, so nothing can be compared with it"
    return ""


def _wrong(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any], tolerance: float | None, bit_exact: bool) -> str:
    if bit_exact or b.dtype.name not in _TOLERANCES:
        different = int((_bits(a) != _bits(b)).any(axis=-1).sum()) if not a.dtype.hasobject else int((a != b).sum())
        return f"{different} of {b.size} elements differ, and they may not" if different else ""
    wide_a, wide_b = a.astype(np.float64), b.astype(np.float64)
    finite = np.isfinite(wide_b)
    if not np.array_equal(wide_a[~finite], wide_b[~finite], equal_nan=True) or not np.isfinite(wide_a[finite]).all():
        return "infinities or NaNs are at other places"
    limit = _TOLERANCES[b.dtype.name] if tolerance is None else tolerance
    scale = max(float(np.abs(wide_b[finite]).max(initial=0.0)), 1e-30)
    error = float(np.abs(wide_a[finite] - wide_b[finite]).max(initial=0.0)) / scale
    return "" if error <= limit else f"differs by {error:.3g} of the largest value, allowed is {limit:.3g}"


def _bits(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Returns the bytes of each element, [size, itemsize]."""
    return np.ascontiguousarray(array).reshape(-1, 1).view(np.uint8)
