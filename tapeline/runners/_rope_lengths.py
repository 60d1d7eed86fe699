"""Length of a sequence, on which the frequencies of some models' RoPE depend."""

from collections.abc import Mapping
from typing import Any, Final

_LONGROPE: Final = "longrope"
_DYNAMIC: Final = "dynamic"


class RopeLengths:
    """Length of a sequence, as the model's RoPE takes it.

    Args:
        model: description of the model in the bundle's manifest.

    Attributes:
        length: number of tokens of the sequence when it began.
    """

    def __init__(self, model: Mapping[str, Any]) -> None:
        scalings = [(rope or {}).get("scaling", {}) for rope in (model.get("rope"), model.get("local_rope"))]
        self._original: Final = [
            scaling["original_length"]
            for scaling in scalings
            if scaling.get("type") == _LONGROPE and scaling["short_factors"] != scaling["long_factors"]
        ]
        self._trained: Final = [scaling["trained"] for scaling in scalings if scaling.get("type") == _DYNAMIC]
        self.length = 0

    def begin(self, length: int) -> None:
        """Takes the number of tokens of the sequence."""
        self.length = length

    def outgrown(self, length: int) -> bool:
        """Returns whether the sequence with so many tokens needs other keys than it had when it began.

        With longrope it does beyond the original length. With dynamic NTK keys stay as they are, as in transformers.
        """
        return self._passed(length) != self._passed(self.length)

    def _passed(self, length: int) -> int:
        return sum(length > original for original in self._original)

    def regime_of(self, length: int) -> int:
        """Returns a number that is the same for lengths with the same frequencies."""
        passed = self._passed(length)
        return max([passed, *(length for trained in self._trained if length > trained)])
