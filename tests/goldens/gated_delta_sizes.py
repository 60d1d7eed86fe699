"""Sizes of the Gated DeltaNet blocks of which there are goldens."""

from dataclasses import dataclass
from typing import Final

BATCH: Final = 2
PIECES: Final = (70, 1, 2, 1, 5)  # prefill over more than a chunk, decode, chunked prefill


@dataclass(frozen=True)
class GatedDeltaSizes:
    """The arguments of ``GatedDeltaNet``, and the weights' seed."""

    size: int
    key_heads: int
    value_heads: int
    key_size: int
    value_size: int
    taps: int
    norm_eps: float
    grouped: bool
    seed: int


CASES: Final = {
    "qwen3_next": GatedDeltaSizes(12, 2, 6, 5, 4, 4, 1e-6, True, 1),
    "qwen3_next_equal_heads": GatedDeltaSizes(10, 3, 3, 4, 6, 3, 1e-3, True, 2),
    "qwen3_5": GatedDeltaSizes(12, 2, 4, 5, 4, 4, 1e-6, False, 3),
}
