"""Integers of four bits and more for matvecs with AVX2: low ones of two blocks share a register, high ones another."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from lang_core import BLOCK, Encoding
from run_iree.kernels._avx2_minus import integer_offset
from run_iree.kernels._avx2_row import BYTES, Integers
from run_iree.kernels._avx2_scales import lanes_of, part_place, picked
from run_iree.kernels._instruction_sets import bytes_looked_up
from run_iree.kernels._text import listed

_HALF: Final = BLOCK // 2
_HALF_BYTES: Final = f"vector<{_HALF}xi8>"
_WORD: Final = 4  # bytes with the fifth bits of a block


@dataclass(frozen=True, slots=True)
class Nibbles:
    """Two times sixteen bytes of a row in a register.

    Attributes:
        name: end of the names of its values.
        places: first bytes of the sixteens, from the first of the step.
        columns: columns of their first low integers, from the first of the step.
        up: columns from a low integer to the high one of its byte.
    """

    name: str
    places: tuple[int, int]
    columns: tuple[int, int]
    up: int

    def numbers(self) -> tuple[int, int]:
        """Returns the index constants that the lines need."""
        return self.places

    def loaded(self, w: str) -> list[str]:
        """Makes ``%both<name>``."""
        lines = []
        for side, place in zip(("first", "second"), self.places, strict=True):
            lines += [
                f"%{side}{self.name}_at = arith.addi %at, %c{place} : index",
                f"%{side}{self.name} = vector.load %w[%{side}{self.name}_at] : {w}, {_HALF_BYTES}",
            ]
        halves = f"%first{self.name}, %second{self.name}"
        order = listed(range(BLOCK))
        return [*lines, f"%both{self.name} = vector.shuffle {halves} {order} : {_HALF_BYTES}, {_HALF_BYTES}"]

    def integers(self) -> tuple[Integers, Integers]:
        """Returns the registers of unsigned integers."""
        return self._side("low", 0), self._side("high", self.up)

    def _side(self, side: str, up: int) -> Integers:
        return Integers(f"{side}{self.name}", tuple(first + up + i for first in self.columns for i in range(_HALF)))

    def unpacked(self, encoding: Encoding, blocks: int) -> list[str]:
        """Makes the integers of ``%both<name>``; their fifth bits are in ``fifth_bits`` of a step of so many blocks."""
        done = encoding.layout.table is None and len(encoding.layout.planes) == 1
        low, high = (f"%{integers.name}{'' if done else '_nibbles'}" for integers in self.integers())
        lines = [
            f"{low} = arith.andi %both{self.name}, %nibble : {BYTES}",
            f"{high} = arith.shrui %both{self.name}, %four : {BYTES}",
        ]
        for integers in () if done else self.integers():
            name = f"%{integers.name}"
            if encoding.layout.table is not None:
                lines.append(f"{name} = {bytes_looked_up('%table', f'{name}_nibbles')}")
            else:
                lines += _with_fifth(name, integers.columns, blocks)
        return lines


def nibble_constants(encoding: Encoding) -> list[str]:
    """Returns the vectors that ``Nibbles`` needs, made ahead of all loops."""
    lines = [f"%nibble = arith.constant dense<15> : {BYTES}", f"%four = arith.constant dense<4> : {BYTES}"]
    if encoding.layout.table is not None:
        numbers = [number + integer_offset(encoding) for number in encoding.layout.table]
        signed = [number - 256 if number > 127 else number for number in numbers]
        lines.append(f"%table = arith.constant dense<{listed(signed * 2)}> : {BYTES}")
    for plane in encoding.layout.planes[1:]:
        bits = [1 << bit if bit < 7 else -128 for bit in range(8)]
        lines += [
            f"%each_bit = arith.constant dense<{listed(bits * 4)}> : {BYTES}",
            f"%fifth = arith.constant dense<{1 << plane.up}> : {BYTES}",
            f"%no_bit = arith.constant dense<0> : {BYTES}",
        ]
    return lines


def fifth_bits(encoding: Encoding, blocks: int, w: str) -> list[str]:
    """Makes ``%fifths`` vector<u8> of the bits that are stored in the order of the integers, if any."""
    lines, lanes = [], lanes_of(blocks)
    for plane in encoding.layout.planes[1:]:
        lines += [
            *picked("fifth_words", encoding, plane.at, _WORD, blocks, w),
            f"%fifths = vector.bitcast %fifth_words : vector<{lanes}xi32> to vector<{_WORD * lanes}xi8>",
        ]
    return lines


def fifth_numbers(encoding: Encoding, blocks: int) -> list[int]:
    """Returns the index constants that ``fifth_bits`` needs."""
    others = encoding.layout.planes[1:]
    return [part_place(encoding, plane.at, _WORD, block) for plane in others for block in range(blocks)]


def _with_fifth(name: str, columns: Sequence[int], blocks: int) -> list[str]:
    """Makes ``name`` of its nibbles and the fifth bits of columns: a byte of eight bits for each, and a bit of it."""
    kind, lanes = f"vector<{_WORD * lanes_of(blocks)}xi8>", listed([column // 8 for column in columns])
    return [
        f"{name}_spread = vector.shuffle %fifths, %fifths {lanes} : {kind}, {kind}",
        f"{name}_bit = arith.andi {name}_spread, %each_bit : {BYTES}",
        f"{name}_is = arith.cmpi eq, {name}_bit, %each_bit : {BYTES}",
        f"{name}_top = arith.select {name}_is, %fifth, %no_bit : vector<{BLOCK}xi1>, {BYTES}",
        f"{name} = arith.ori {name}_nibbles, {name}_top : {BYTES}",
    ]
