"""Figures of the agreement of two arrays."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np

from lang_core import checked_choices

# Largest error, relative to the largest reference value, that rounding through a whole model explains: see
# docs/numerics.md. Operands of packed weights have 16 bits, or 8 where that was asked for, as many as bf16 has.
PACKED: Final = "packed"
"""Key of the tolerance of products with packed weights."""
PACKED_Q8: Final = "packed, q8"
"""Key of the tolerance of products with packed weights whose activations are rounded to 8 bits."""
TOLERANCE: Final = {"f32": 1e-4, "f64": 1e-4, "f16": 1e-2, "bf16": 3e-2, PACKED: 1e-3, PACKED_Q8: 3e-2}
"""Largest error of a result that agrees, relative to the largest reference value, by dtype or kind of product."""
FORMER_ACTIVATIONS: Final = "q8"
"""Form of activations of bundles whose description does not tell it."""

# Factor between the errors of two computations that round at other places.
_AS_NEAR: Final = 2.0


def precision_of(model: Mapping[str, Any]) -> str:
    """Returns the key of ``TOLERANCE`` for a model's description: its dtype, or that of products if that is coarser."""
    dtype = str(model.get("dtype", "f32"))
    if model.get("quantize", "none") == "none":
        return dtype
    packed = PACKED if model.get("activations", FORMER_ACTIVATIONS) == "exact" else PACKED_Q8
    return max(dtype, packed, key=TOLERANCE.__getitem__)


@checked_choices
@dataclass(frozen=True, slots=True)
class Agreement:
    """Figures of agreement, over all elements that are finite in the reference.

    Attributes:
        max_abs: largest absolute error.
        max_rel: largest absolute error, divided by the largest absolute reference value.
        cosine: cosine of the angle between the two as vectors.
        nmse: sum of squared errors, divided by the sum of squared reference values.
        top1: fraction of rows whose largest element is at the same index.
        nonfinite_match: whether the same elements are finite, and infinities have the same signs. Infinity in place of
            NaN is accepted: it depends on the order of a sum.
    """

    max_abs: float
    max_rel: float
    cosine: float
    nmse: float
    top1: float
    nonfinite_match: bool

    def within(self, tolerance: float) -> bool:
        """Returns whether the two agree within a tolerance."""
        return self.nonfinite_match and self.max_rel <= tolerance

    def as_near(self, other: "Agreement") -> bool:
        """Returns whether the error is at most about that of another computation of the same reference."""
        return self.nonfinite_match and self.nmse <= _AS_NEAR * other.nmse and self.max_rel <= _AS_NEAR * other.max_rel

    def as_json(self) -> dict[str, Any]:
        """Returns the figures by name."""
        return asdict(self)


def agreement(actual: np.ndarray, reference: np.ndarray) -> Agreement:
    """Compares two arrays of one shape ``[.., V]``, in float64."""
    a, b = actual.astype(np.float64), reference.astype(np.float64)
    finite = np.isfinite(b)
    infinite = np.isinf(a) & np.isinf(b)
    same = bool(np.array_equal(np.isfinite(a), finite) and np.array_equal(a[infinite], b[infinite]))
    x, y = np.where(finite & np.isfinite(a), a, 0.0), np.where(finite & np.isfinite(a), b, 0.0)
    error = np.abs(x - y)
    scale = float(np.abs(y).max(initial=0.0))
    norms = math.sqrt(float((x * x).sum()) * float((y * y).sum()))
    power = float((y * y).sum())
    rows = reference.reshape(-1, reference.shape[-1]) if reference.ndim and reference.size else reference.reshape(1, -1)
    top1 = float((actual.reshape(rows.shape).argmax(-1) == rows.argmax(-1)).mean()) if reference.size else 1.0
    max_abs = float(error.max(initial=0.0))
    return Agreement(
        max_abs=max_abs,
        max_rel=max_abs / scale if scale else max_abs,
        cosine=float((x * y).sum()) / norms if norms else float(max_abs == 0),
        nmse=float((error * error).sum()) / power if power else max_abs,
        top1=top1,
        nonfinite_match=same,
    )
