"""Entry points of a bundle that come in several sizes."""

from collections.abc import Sequence
from typing import Final

from runtime import Session
from tapeline.bundle import Bundle
from tapeline.runners._predictions import LOGITS
from transformer_core import ADAPTED, NEXT_IDS


class SizedCall:
    """Entry point in one size, prepared.

    Attributes:
        size: tokens that a call of ``prefill_row`` or ``verify_row`` takes, or rows that one of ``decode`` does.
        call: prepared call.
        next_ids: index of the result with the likeliest tokens.
        token_bytes: bytes of token ids, rows and positions per call.
        adapted: the same call with adapters; None if the bundle has none.
    """

    adapted: "SizedCall | None"

    def __init__(self, bundle: Bundle, session: Session, name: str) -> None:
        point = bundle.entry_point(name)
        self.size: Final = max(point.arguments[0].spec.shape)
        self.call: Final = session.updating(name, LOGITS + 1)
        self.next_ids: Final = [result.name for result in point.results].index(NEXT_IDS)
        given = [argument for argument in point.arguments if argument.kind == "tensor" and not argument.donated]
        self.token_bytes: Final = sum(argument.spec.nbytes for argument in given if argument.spec.dtype.is_integer)
        others = {point.name for point in bundle.config.entry_points}
        self.adapted = SizedCall(bundle, session, ADAPTED + name) if ADAPTED + name in others else None


def sized_calls(bundle: Bundle, session: Session, name: str) -> list[SizedCall]:
    """Returns the sizes of an entry point, ascending."""
    names = [point.name for point in bundle.config.entry_points]
    sizes = [SizedCall(bundle, session, other) for other in names if other == name or other.startswith(f"{name}_")]
    return sorted(sizes, key=lambda sized: sized.size)


def smallest(entries: Sequence[SizedCall], count: int) -> SizedCall:
    """Returns the first of ascending sizes that takes so many tokens or rows."""
    return next(entry for entry in entries if entry.size >= count)
