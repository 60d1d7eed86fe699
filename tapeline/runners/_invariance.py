"""Calls among which a token's bits are the same, and how a bundle says so."""

from collections.abc import Mapping
from enum import Enum
from typing import Any

from lang_core import checked_choices


class Invariance(Enum):
    """Calls among which a token's bits (logits, entries of caches, states) are the same."""

    CALLS = "calls"
    """All of them, whatever their sizes, and whatever the token's row."""
    ROWS = "rows"
    """Calls of the same sizes, whatever the token's row."""
    NONE = "none"
    """Calls of the same sizes in which the token's row has the same place."""


@checked_choices
def invariance_fields(measured: Mapping[str, Invariance]) -> dict[str, dict[str, bool]]:
    """Returns the measured fields of a bundle's model, by target."""
    return {
        "invariant": {target: invariance is Invariance.CALLS for target, invariance in measured.items()},
        "row_invariant": {target: invariance is not Invariance.NONE for target, invariance in measured.items()},
    }


def known_invariance(model: Mapping[str, Any], target: str) -> Invariance | None:
    """Returns a bundle's measurement for a target; None if it says nothing, or not all of it."""
    if model["invariant"].get(target, False):
        return Invariance.CALLS
    same_in_rows = model.get("row_invariant", {}).get(target)  # former versions did not write it
    if same_in_rows is None:
        return None
    return Invariance.ROWS if same_in_rows else Invariance.NONE
