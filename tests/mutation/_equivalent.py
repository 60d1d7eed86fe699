"""Mutants that give the same as what they were made from, each with the reason. The shorter, the better."""

import re
from typing import Final

_COMMUTES: Final = "add|multiply|and|or|xor|maximum|minimum"

# A regular expression for the whole name, and the reason.
EQUIVALENT: Final[tuple[tuple[str, str], ...]] = (
    (rf"emission/[^/]+/({_COMMUTES}) \d+: operands swapped", "the operation commutes"),
    (r"emission/(equal|not_equal|argmax|argmin)/compare 1: operands swapped", "equality commutes"),
    (r"emission/while/compare 2: operands swapped", "it is the body's equality, which commutes"),
    (r"emission/[^/]+/compare \d+: signs otherwise", "interpreter and IREE go by the element type, which says it too"),
    (r"emission/sort/or 2: another function", "a number that is less and a NaN beside it exclude each other"),
    (
        r"emission/(argmax|argmin)/constant 2: another constant",
        "some index is found, so any larger one will do elsewhere",
    ),
    (r"emission/[^/]+/(reduce|reverse) \d+: a list turned round", "a set of axes has no order"),
    (r"eager/(rem|sign|tanh|logistic|erf|sin|cos)/infinities are 1", "its results are never infinite"),
    (r"emission/scatter/constant 1: another constant", "the element in which it ends is cut off again"),
    (r"emission/tanh/constant 2: another constant", "tanh is 1 in f64 from 20 on"),
    (r"emission/tanh/clamp 1: operands swapped", "only the lower bound is lost: the quotient is -1 there anyway"),
    (r"emission/erf/compare 1: equality counts otherwise", "of 0, the other form is taken"),
    (r"emission/erf/compare 2: equality counts otherwise", "at 1 both forms are within the function's tolerance"),
    (r"emission/rem/compare [12]: equality counts otherwise", "of 0 the negated remainder is the remainder, 0"),
    (r"emission/(argmax|argmin)/or 1: another function", "a NaN equals nothing: the two never both hold"),
)


def reason(name: str) -> str | None:
    """Returns why nothing can notice a mutant; None if something can."""
    return next((why for pattern, why in EQUIVALENT if re.fullmatch(pattern, name)), None)
