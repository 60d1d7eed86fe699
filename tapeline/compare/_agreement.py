"""Figures of the agreement of two arrays."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np

from lang_core import checked_choices

# Largest error, relative to the largest reference value, that rounding through a whole model explains: see
# docs/numerics.md. Operands of packed weights have 16 bits, or 8 if that was asked for, as many as bf16 has.
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

_ELEMENTS_AT_ONCE: Final = 2**15


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
        top1: fraction of rows with the largest element at the same index.
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
    """Compares two arrays of one shape ``[.., V]``, in float64.

    Some rows at a time, so that large tensors, such as caches, are read from memory once.
    """
    width = reference.shape[-1] if reference.ndim and reference.size else max(reference.size, 1)
    mine, theirs = actual.reshape(-1, width), reference.reshape(-1, width)
    sums, rows = _Sums(), max(1, _ELEMENTS_AT_ONCE // width)
    for start in range(0, len(theirs), rows):
        sums.add(mine[start : start + rows], theirs[start : start + rows])
    return sums.figures(len(theirs))


class _Sums:
    """Sums over the rows that were compared so far."""

    def __init__(self) -> None:
        self._max_abs = self._scale = 0.0
        self._product = self._own = self._power = self._error = 0.0
        self._top1 = 0
        self._same = True

    def add(self, actual: np.ndarray, reference: np.ndarray) -> None:
        """Adds rows ``[.., V]``."""
        x, y = actual.astype(np.float64), reference.astype(np.float64)
        self._top1 += int((actual.argmax(-1) == reference.argmax(-1)).sum())
        if not (np.isfinite(x).all() and np.isfinite(y).all()):
            x, y = self._finite(x, y)
        error = x - y
        self._max_abs = max(self._max_abs, float(np.abs(error).max(initial=0.0)))
        self._scale = max(self._scale, float(np.abs(y).max(initial=0.0)))
        self._product += float((x * y).sum())
        self._own += float((x * x).sum())
        self._power += float((y * y).sum())
        self._error += float((error * error).sum())

    def _finite(self, a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Notes whether the same elements are finite, and returns both with 0 for those that are not."""
        finite, infinite = np.isfinite(b), np.isinf(a) & np.isinf(b)
        same = np.array_equal(np.isfinite(a), finite) and np.array_equal(a[infinite], b[infinite])
        self._same = self._same and bool(same)
        both = finite & np.isfinite(a)
        return np.where(both, a, 0.0), np.where(both, b, 0.0)

    def figures(self, rows: int) -> Agreement:
        """Returns the figures of so many rows."""
        norms = math.sqrt(self._own * self._power)
        return Agreement(
            max_abs=self._max_abs,
            max_rel=self._max_abs / self._scale if self._scale else self._max_abs,
            cosine=self._product / norms if norms else float(self._max_abs == 0),
            nmse=self._error / self._power if self._power else self._max_abs,
            top1=self._top1 / rows if rows else 1.0,
            nonfinite_match=self._same,
        )
