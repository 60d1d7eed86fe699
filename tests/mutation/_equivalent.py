"""Mutants that give the same as what they were made from, each with the reason. The shorter, the better."""

import re
from typing import Final

_COMMUTES: Final = "add|multiply|and|or|xor|maximum|minimum"

# A regular expression for the whole name, and the reason.
EQUIVALENT: Final[tuple[tuple[str, str], ...]] = (
    (rf"emission/[^/]+/({_COMMUTES}) \d+: operands swapped", "the operation commutes"),
    (r"emission/(equal|not_equal|argmax|argmin)/compare 1: operands swapped", "equality commutes"),
    (r"emission/[^/]+/(reduce|reverse) \d+: a list turned round", "a set of axes has no order"),
    (r"eager/(rem|sign|tanh|logistic|erf|sin|cos)/infinities are 1", "its results are never infinite"),
    (r"emission/[^/]+/compare \d+: signs otherwise", "StableHLO goes by the element type, which says it too"),
    (r"emission/sort/(compare 3: equality counts otherwise|or \d: another function)", "places differ, cases exclude"),
    (r"emission/scatter/constant 1: another constant", "the element in which it ends is cut off again"),
    (r"emission/scatter/constant 3: another constant", "StableHLO drops what is outside; devices_test minds it"),
    (r"emission/take/(constant \d: another constant|clamp 1: .*)", "StableHLO clamps by itself; devices_test minds it"),
    (r"emission/tanh/(constant [12]: another constant|clamp 1: .*)", "tanh is 1 in f64 from 20 on, and e^-40 is 0"),
    (r"emission/rem/compare [12]: equality counts otherwise", "of 0 the negated remainder is the remainder, 0"),
    (r"emission/(argmax|argmin)/or 1: another function", "a NaN equals nothing: the two never both hold"),
    (
        r"emission/(argmax|argmin)/constant \d: another constant",
        "some index is found: any larger one will do elsewhere",
    ),
)


def reason(name: str) -> str | None:
    """Why nothing can notice a mutant; None if something can."""
    return next((why for pattern, why in EQUIVALENT if re.fullmatch(pattern, name)), None)
