"""Compares one tensor with another."""

import numpy as np

from lang_core import TensorSpec, as_dtype
from run_iree.dump import TensorLabel
from tapeline.compare._agreement import agreement
from tapeline.compare._comparison import ComparedTensor


def compare_tensors(label: TensorLabel, found: np.ndarray, reference: np.ndarray, tolerance: float) -> ComparedTensor:
    """Compares the elements of two arrays. Floats may differ by the tolerance, all else must be equal."""
    specs = spec_of(found), spec_of(reference)
    if are_unlike(*specs):
        return unlike(label, *specs)
    figures = agreement(found, reference)
    agrees = figures.within(tolerance if specs[1].dtype.is_floating else 0.0)
    return ComparedTensor(
        label=label,
        state="agrees" if agrees else "differs",
        found=repr(specs[0]),
        reference=repr(specs[1]),
        figures=figures,
    )


def are_unlike(found: TensorSpec, reference: TensorSpec) -> bool:
    """Whether the elements cannot be compared: other shapes, or numbers of another kind."""
    return found.shape != reference.shape or (
        found.dtype is not reference.dtype and not (found.dtype.is_floating and reference.dtype.is_floating)
    )


def unlike(label: TensorLabel, found: TensorSpec, reference: TensorSpec) -> ComparedTensor:
    """Two tensors that cannot be compared."""
    return ComparedTensor(label=label, state="unlike", found=repr(found), reference=repr(reference))


def left_out(label: TensorLabel, spec: TensorSpec, *, missing: bool) -> ComparedTensor:
    """A tensor that only one side has: the reference where the other misses it."""
    found, reference = (None, repr(spec)) if missing else (repr(spec), None)
    return ComparedTensor(label=label, state="missing" if missing else "extra", found=found, reference=reference)


def spec_of(array: np.ndarray) -> TensorSpec:
    """Shape and dtype."""
    return TensorSpec(array.shape, as_dtype(array.dtype))
