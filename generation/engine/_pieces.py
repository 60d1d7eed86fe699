"""Cut of prompts into the pieces that ``prefill_row`` takes."""

from collections.abc import Sequence
from itertools import accumulate


def canonical_pieces(length: int, chunks: Sequence[int]) -> list[int]:
    """Returns the sizes of the pieces in which ``length`` tokens are run.

    As many of the largest chunk as fit, then of the next, and the rest, padded to the smallest: a function of the
    length alone. Models with bits that depend on the chunks always run with these.

    >>> canonical_pieces(300, (8, 32, 128))
    [128, 128, 32, 8, 4]
    """
    pieces: list[int] = []
    for chunk in sorted(chunks, reverse=True):
        count, length = divmod(length, chunk)
        pieces += [chunk] * count
    return [*pieces, length] if length else pieces


def whole_stops(length: int, chunks: Sequence[int]) -> list[int]:
    """Returns the positions behind the pieces of ``canonical_pieces`` without padding.

    >>> whole_stops(300, (8, 32, 128))
    [128, 256, 288, 296]
    """
    pieces = canonical_pieces(length, chunks)
    return list(accumulate(size for size in pieces if size in chunks))
