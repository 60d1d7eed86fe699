"""Lengths of sequences, on which the frequencies of some models' RoPE depend."""

from collections.abc import Mapping
from typing import Any, Final

_LONGROPE: Final = "longrope"
_DYNAMIC: Final = "dynamic"


class RopeLengths:
    """Lengths of the sequences of a batch, as the model's RoPE takes them.

    Args:
        model: description of the model in the bundle's manifest.
        rows: number of sequences.

    Attributes:
        of_rows: number of tokens of each row's sequence when it began.
    """

    def __init__(self, model: Mapping[str, Any], rows: int) -> None:
        scalings = [(rope or {}).get("scaling", {}) for rope in (model.get("rope"), model.get("local_rope"))]
        self._original: Final = [
            scaling["original_length"]
            for scaling in scalings
            if scaling.get("type") == _LONGROPE and scaling["short_factors"] != scaling["long_factors"]
        ]
        self._trained: Final = [scaling["trained"] for scaling in scalings if scaling.get("type") == _DYNAMIC]
        self.of_rows: Final = [0] * rows

    def begin(self, row: int, length: int) -> None:
        """Takes the number of tokens of a row's sequence."""
        self.of_rows[row] = length

    def regime(self, row: int) -> int:
        """Returns ``regime_of`` the length of a row's sequence."""
        return self.regime_of(self.of_rows[row])

    def outgrown(self, row: int, length: int) -> bool:
        """Returns whether a row's sequence with so many tokens needs other keys than it had when it began.

        With longrope it does beyond the original length. With dynamic NTK keys stay as they are, as in transformers.
        """
        return self._passed(length) != self._passed(self.of_rows[row])

    def _passed(self, length: int) -> int:
        return sum(length > original for original in self._original)

    def regime_of(self, length: int) -> int:
        """Returns a number that is the same for lengths with the same frequencies."""
        passed = self._passed(length)
        return max([passed, *(length for trained in self._trained if length > trained)])
