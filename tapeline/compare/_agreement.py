"""How well two results agree."""

import math
from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np

# Largest error, relative to the largest reference value, that rounding explains through a whole model: see
# docs/numerics.md. What packed weights are multiplied with is rounded to 8 bits, as many as a bf16 has.
PACKED: Final = "packed"
TOLERANCE: Final = {"f32": 1e-4, "f64": 1e-4, "f16": 1e-2, "bf16": 3e-2, PACKED: 3e-2}

# Two computations that round in other places are not equally far from the truth.
_AS_NEAR: Final = 2.0


@dataclass(frozen=True, slots=True)
class Agreement:
    """Figures over all elements that are finite in the reference.

    Attributes:
        max_abs: the largest absolute error.
        max_rel: the largest absolute error over the largest absolute reference value.
        cosine: of the angle between the two as vectors.
        nmse: the squared error over the squared reference.
        top1: the share of rows whose largest element is at the same place.
        nonfinite_match: whether the same elements are finite, and infinities have the same signs. Infinity in place of
            NaN is let pass: the order of a sum decides that.
    """

    max_abs: float
    max_rel: float
    cosine: float
    nmse: float
    top1: float
    nonfinite_match: bool

    def within(self, tolerance: float) -> bool:
        """Whether the two agree."""
        return self.nonfinite_match and self.max_rel <= tolerance

    def as_near(self, other: "Agreement") -> bool:
        """Whether this is about as near to the same reference as another, whose distance rounding explains."""
        return self.nonfinite_match and self.nmse <= _AS_NEAR * other.nmse and self.max_rel <= _AS_NEAR * other.max_rel

    def as_json(self) -> dict[str, Any]:
        """For the report."""
        return asdict(self)


def agreement(found: np.ndarray, reference: np.ndarray) -> Agreement:
    """Compares arrays of one shape ``[.., V]``, in float64."""
    a, b = found.astype(np.float64), reference.astype(np.float64)
    finite = np.isfinite(b)
    infinite = np.isinf(a) & np.isinf(b)
    same = bool(np.array_equal(np.isfinite(a), finite) and np.array_equal(a[infinite], b[infinite]))
    x, y = np.where(finite & np.isfinite(a), a, 0.0), np.where(finite & np.isfinite(a), b, 0.0)
    error = np.abs(x - y)
    scale = float(np.abs(y).max(initial=0.0))
    norms = math.sqrt(float((x * x).sum()) * float((y * y).sum()))
    power = float((y * y).sum())
    rows = reference.reshape(-1, reference.shape[-1]) if reference.ndim and reference.size else reference.reshape(1, -1)
    top1 = float((found.reshape(rows.shape).argmax(-1) == rows.argmax(-1)).mean()) if reference.size else 1.0
    max_abs = float(error.max(initial=0.0))
    return Agreement(
        max_abs=max_abs,
        max_rel=max_abs / scale if scale else max_abs,
        cosine=float((x * y).sum()) / norms if norms else float(max_abs == 0),
        nmse=float((error * error).sum()) / power if power else max_abs,
        top1=top1,
        nonfinite_match=same,
    )
