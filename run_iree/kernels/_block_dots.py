"""Exact sums of products of a block's bytes, with a row of W per lane of 32 bits: with AVX-512 VNNI, or without.

With VNNI ``vpdpbusd`` takes x from memory, the high plane first: its sums, times 256, are the initial sums of the low
plane. Without, ``vpmaddubsw`` has two sums of 16 bits for each row, which hold the products of four bits with a plane
of x, and ``vpmaddwd`` adds them up, times the plane's factor.
"""

from dataclasses import dataclass
from typing import Final

from lang_core import BLOCK, Encoding
from run_iree.kernels._instruction_sets import byte_pairs_dot, vnni_dot, word_dot
from run_iree.kernels._lines import Lines, Operand, vector
from run_iree.kernels._turned_rows import WORD, WORDS

_PAIRS: Final = vector(32, "i16")
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
    def before(self) -> Lines:
        """Lines ahead of all loops."""
        b = Lines()
        if self.vnni:
            b.constant("zero", 0, WORDS)
            b.constant("by_base", 8, WORDS)
            return b
        for plane, factor in enumerate([256, 1][2 - self.planes :]):
            b.constant(f"factor{plane}", factor, _PAIRS)
        return b

    def added(self, n: str, plane: int, word: int, w: str, x: str) -> Lines:
        """Adds the products of a word of W, unsigned bytes, and of a plane of x to the sums ``n``."""
        b, name = Lines(), f"sums{n}_{plane}_{word}"
        if self.vnni:
            begin = self._sums(n, plane, word - 1) if word else self._begun(b, n, plane)
            b.make(name, vnni_dot(begin, w, x), WORDS)
        elif word:
            more = b.make(f"{name}_more", byte_pairs_dot(w, x), _PAIRS)
            b.same(name, "arith.addi", self._sums(n, plane, word - 1), more)
        else:
            b.make(name, byte_pairs_dot(w, x), _PAIRS)
        return b

    def joined(self, n: str, plane: int) -> Lines:
        """Makes ``%total<n>`` vector<16xi32> after the last plane."""
        b, sums, last = Lines(), self._sums(n, plane, _LAST), plane == self.planes - 1
        if self.vnni:
            if last:
                b.cast(f"total{n}", "vector.bitcast", sums, WORDS)
            return b
        name = f"total{n}" if last else f"plane{n}_{plane}"
        dot = word_dot(sums, f"%factor{plane}")
        if plane == 0 and not self.started:
            b.make(name, dot, WORDS)
            return b
        former = Operand(f"%plane{n}_0" if plane else f"%start{n}", WORDS)
        b.same(name, "arith.addi", former, b.make(f"{name}_words", dot, WORDS))
        return b

    def _sums(self, n: str, plane: int, word: int) -> Operand:
        """Returns the sums ``n`` of a plane after a word."""
        return Operand(f"%sums{n}_{plane}_{word}", WORDS if self.vnni else _PAIRS)

    def _begun(self, b: Lines, n: str, plane: int) -> Operand:
        """Returns the initial value of a plane's sums."""
        zero = Operand("%zero", WORDS)
        start = Operand(f"%start{n}", WORDS) if self.started else zero
        if plane == 0:
            return start if self.planes == 1 else zero
        based = b.same(f"based{n}", "arith.shli", self._sums(n, 0, _LAST), Operand("%by_base", WORDS))
        return b.same(f"started{n}", "arith.addi", based, start) if self.started else based
