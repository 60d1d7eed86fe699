"""Parts of adapters that linear layers compute beside their weights: matrices, and the places of weights."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from lang_core import checked_choices


@checked_choices
@dataclass(frozen=True, slots=True)
class AdapterPlace:
    """Stored matrix that a linear layer's weight is a part of.

    Attributes:
        key: key of the stored matrix, as adapters name it.
        rows: first row and the row behind the last one of each part of it that the weight has, in order; None for all.
        transposed: True if the matrix is stored [inputs, outputs], so that the parts are columns.
    """

    key: str
    rows: tuple[tuple[int, int], ...] | None = None
    transposed: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Returns the place in JSON's types; defaults are left out."""
        rows = {} if self.rows is None else {"rows": [list(part) for part in self.rows]}
        return {"key": self.key, **rows, **({"transposed": True} if self.transposed else {})}

    @staticmethod
    def from_dict(values: Mapping[str, Any]) -> "AdapterPlace":
        """Returns the place that ``to_dict`` described."""
        rows = values.get("rows")
        parts = None if rows is None else tuple((int(first), int(last)) for first, last in rows)
        return AdapterPlace(str(values["key"]), parts, bool(values.get("transposed", False)))


class Factors(NamedTuple):
    """Low-rank change of one weight: ``left @ right``.

    Attributes:
        right: f32 [r, in], A.
        left: f32 [out, r], B times the adapter's scale.
    """

    right: np.ndarray
    left: np.ndarray
