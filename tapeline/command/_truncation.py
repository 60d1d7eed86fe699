"""Warnings of texts that a model read the beginning of."""

from collections.abc import Sequence

from tapeline.cli import say
from tapeline.running import TextArray


def warn_of_truncation(texts: Sequence[str], results: TextArray) -> None:
    """Writes a warning to stderr if texts were truncated."""
    warn_of_counts(texts, results.tokens.tolist(), results.truncated.tolist())


def warn_of_counts(texts: Sequence[str], tokens: Sequence[int], truncated: Sequence[int]) -> None:
    """Writes a warning to stderr if texts were truncated, by the tokens of each that were read and cut off."""
    cut = [index for index, count in enumerate(truncated) if count]
    if not cut:
        return
    first = texts[cut[0]]
    shown = f"{first[:40]!r}{'...' if len(first) > 40 else ''}"
    more = f", and {len(cut) - 1} more" if cut[1:] else ""
    say(
        f"warning: {shown} is longer than the {tokens[cut[0]]} tokens that the model reads: "
        f"{truncated[cut[0]]} were cut off{more} (--notruncate refuses such texts)"
    )
