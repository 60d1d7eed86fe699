"""Comparison of two tensors."""

import numpy as np

from lang_core import TensorSpec, as_dtype, checked_choices
from runtime.dump import TensorLabel
from tapeline.compare._agreement import agreement
from tapeline.compare._comparison import ComparedTensor


def compare_tensors(label: TensorLabel, actual: np.ndarray, reference: np.ndarray, tolerance: float) -> ComparedTensor:
    """Compares two arrays. Floats may differ by the tolerance; other elements must be equal.

    Args:
        label: name and place of the tensor.
        actual: array of any shape that is judged.
        reference: array of the same shape that is held to be right.
        tolerance: largest error of floats, relative to the largest reference value.
    """
    specs = spec_of(actual), spec_of(reference)
    if are_unlike(*specs):
        return unlike(label, *specs)
    figures = agreement(actual, reference)
    agrees = figures.within(tolerance if specs[1].dtype.is_floating else 0.0)
    return ComparedTensor(
        label=label,
        state="agrees" if agrees else "differs",
        actual=repr(specs[0]),
        reference=repr(specs[1]),
        figures=figures,
    )


def are_unlike(actual: TensorSpec, reference: TensorSpec) -> bool:
    """Returns whether elements cannot be compared: other shapes, or other kinds of dtype."""
    return actual.shape != reference.shape or (
        actual.dtype is not reference.dtype and not (actual.dtype.is_floating and reference.dtype.is_floating)
    )


def unlike(label: TensorLabel, actual: TensorSpec, reference: TensorSpec) -> ComparedTensor:
    """Returns the comparison of two tensors that cannot be compared."""
    return ComparedTensor(label=label, state="unlike", actual=repr(actual), reference=repr(reference))


@checked_choices
def left_out(label: TensorLabel, spec: TensorSpec, *, missing: bool) -> ComparedTensor:
    """Returns the comparison of a tensor that only one side has; the reference if ``missing``."""
    actual, reference = (None, repr(spec)) if missing else (repr(spec), None)
    return ComparedTensor(label=label, state="missing" if missing else "extra", actual=actual, reference=reference)


def spec_of(array: np.ndarray) -> TensorSpec:
    """Returns the spec of an array."""
    return TensorSpec(array.shape, as_dtype(array.dtype))
