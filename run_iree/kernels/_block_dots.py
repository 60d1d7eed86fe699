"""Exact sums of products of a block's bytes, with a row of W per lane of 32 bits: with AVX-512 VNNI, or without.

With VNNI ``vpdpbusd`` takes x from memory, the high plane first: its sums, times 256, are the initial sums of the low
plane. Without, ``vpmaddubsw`` has two sums of 16 bits for each row, which hold the products of four bits with a plane
of x, and ``vpmaddwd`` adds them up, times the plane's factor.
"""

from dataclasses import dataclass
from typing import Final

from lang_core import BLOCK, Encoding
from run_iree.kernels._instruction_sets import byte_pairs_dot, vnni_dot, word_dot
from run_iree.kernels._turned_rows import WORD, WORDS

_PAIRS: Final = "vector<32xi16>"
_LAST: Final = BLOCK // WORD - 1
_MOST_BITS: Final = 4  # 8 sums of two products of 15 and -128 are within 16 bits


def fits_pair_dots(encoding: Encoding) -> bool:
    """Returns whether sums of 16 bits hold the products of a block of an encoding with one plane."""
    return encoding.bits <= _MOST_BITS and encoding.layout.table is None


@dataclass(frozen=True, slots=True)
class BlockDots:
    """Lines of the products of a block.

    Attributes:
        planes: planes of x's integers: one, or two, the first of which counts 256 times.
        started: whether sums begin with ``%start<n>``.
        vnni: whether to use VNNI.
    """

    planes: int
    started: bool
    vnni: bool

    @property
    def before(self) -> list[str]:
        """Lines ahead of all loops."""
        if self.vnni:
            return [
                f"%zero = arith.constant dense<0> : {WORDS}",
                f"%by_base = arith.constant dense<8> : {WORDS}",
            ]
        factors = [256, 1][2 - self.planes :]
        return [f"%factor{plane} = arith.constant dense<{factor}> : {_PAIRS}" for plane, factor in enumerate(factors)]

    def added(self, n: str, plane: int, word: int, w: str, x: str) -> list[str]:
        """Adds the products of a word of W, unsigned bytes, and of a plane of x to the sums ``n``."""
        name, before = f"%sums{n}_{plane}_{word}", f"%sums{n}_{plane}_{word - 1}"
        if self.vnni:
            lines, begin = ([], before) if word else self._begun(n, plane)
            return [*lines, f"{name} = {vnni_dot(begin, w, x)}"]
        if not word:
            return [f"{name} = {byte_pairs_dot(w, x)}"]
        return [
            f"{name}_more = {byte_pairs_dot(w, x)}",
            f"{name} = arith.addi {before}, {name}_more : {_PAIRS}",
        ]

    def _begun(self, n: str, plane: int) -> tuple[list[str], str]:
        """Returns lines, and the initial value of a plane's sums."""
        start = f"%start{n}" if self.started else "%zero"
        if plane == 0:
            return [], start if self.planes == 1 else "%zero"
        lines = [f"%based{n} = arith.shli %sums{n}_0_{_LAST}, %by_base : {WORDS}"]
        if not self.started:
            return lines, f"%based{n}"
        return [*lines, f"%started{n} = arith.addi %based{n}, {start} : {WORDS}"], f"%started{n}"

    def joined(self, n: str, plane: int) -> list[str]:
        """Makes ``%total<n>`` vector<16xi32> after the last plane."""
        sums, last = f"%sums{n}_{plane}_{_LAST}", plane == self.planes - 1
        if self.vnni:
            return [f"%total{n} = vector.bitcast {sums} : {WORDS} to {WORDS}"] if last else []
        before = f"%plane{n}_0" if plane else f"%start{n}" if self.started else None
        made = f"%total{n}" if last else f"%plane{n}_{plane}"
        if before is None:
            return [f"{made} = {word_dot(sums, f'%factor{plane}')}"]
        return [
            f"{made}_words = {word_dot(sums, f'%factor{plane}')}",
            f"{made} = arith.addi {before}, {made}_words : {WORDS}",
        ]
