"""Maximum lengths of a request's texts: tokenizing takes a second per megabyte."""

from collections.abc import Sequence
from typing import Final

from tapeline.server._errors import RequestError

PER_TOKEN: Final = 16
"""Letters of a text for each token of the context; nearly every text that fits has fewer."""
BEYOND: Final = 1 << 18
"""Letters of a text beyond them."""
BEYOND_ALL: Final = 1 << 20
"""Letters of all texts of a request beyond them."""
_CODE: Final = "text_too_long"


def most_letters(context: int) -> int:
    """Returns the largest number of letters of a text that is encoded for a model, or of tokens that are decoded."""
    return PER_TOKEN * context + BEYOND


def check_length(count: int, context: int, field: str, unit: str = "letters") -> None:
    """Checks the length of a text, or of a list of tokens.

    Raises:
        RequestError: it is longer than the limit for a model with this context.
    """
    most = most_letters(context)
    if count > most:
        raise RequestError(
            f"{field}: expected at most {most} {unit}; found {count}: send it in parts", param=field, code=_CODE
        )


def check_lengths(counts: Sequence[int], context: int, field: str) -> None:
    """Checks the lengths of texts that are encoded one after the other, and of which a model reads the beginnings.

    Args:
        counts: length of each text, or of each pair of texts that are encoded together.
        context: largest number of tokens that the model reads of each.
        field: field that has the texts.

    Raises:
        RequestError: a text is too long, or all together are.
    """
    check_length(max(counts, default=0), context, field)
    beyond = sum(max(0, count - PER_TOKEN * context) for count in counts)
    if beyond > BEYOND_ALL:
        raise RequestError(
            f"{field}: the model reads {context} tokens of each text: expected at most {BEYOND_ALL} letters beyond "
            f"{PER_TOKEN * context} of each; found {beyond}: send shorter texts, or fewer at once",
            param=field,
            code=_CODE,
        )
