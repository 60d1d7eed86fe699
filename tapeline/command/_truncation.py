"""Warnings of texts that a model read the beginning of."""

from collections.abc import Sequence

from tapeline.cli import say
from tapeline.running import TextArray


def warn_of_truncation(texts: Sequence[str], results: TextArray) -> None:
    """Writes a warning to stderr if texts were truncated."""
    cut = [index for index, count in enumerate(results.truncated.tolist()) if count]
    if not cut:
        return
    first = texts[cut[0]]
    shown = f"{first[:40]!r}{'...' if len(first) > 40 else ''}"
    more = f", and {len(cut) - 1} more" if cut[1:] else ""
    say(
        f"warning: {shown} is longer than the {int(results.tokens[cut[0]])} tokens that the model reads: "
        f"{int(results.truncated[cut[0]])} were cut off{more} (--notruncate refuses such texts)"
    )
