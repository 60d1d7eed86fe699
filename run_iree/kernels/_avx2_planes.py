"""Integers of super-blocks for matvecs with AVX2: a register has those of two blocks, half a super-block apart.

Each half of a register has integers of two parts, and two registers share the parts of two blocks, so that products of
both are summed before they are scaled. Bytes are put in this order before their bits are taken apart.
"""

from dataclasses import dataclass
from typing import Final

from lang_core import BLOCK, Encoding, Plane
from run_iree.kernels._avx2_row import BYTES, Integers
from run_iree.kernels._text import listed

_PAIRS: Final = 4  # pairs of blocks of a super-block
_APART: Final = _PAIRS * BLOCK


@dataclass(frozen=True, slots=True)
class PairedPlanes:
    """Planes of a super-block with integers in runs of 32 bytes or more.

    Attributes:
        encoding: encoding of the row.
    """

    encoding: Encoding

    def registers(self) -> tuple[tuple[Integers, ...], ...]:
        """Returns the integers of each pair of blocks: the first halves of its parts, then the second ones."""
        return tuple(
            tuple(Integers(f"w{pair}_{half}", tuple(self._columns(pair, half))) for half in range(2))
            for pair in range(_PAIRS)
        )

    def _columns(self, pair: int, half: int) -> list[int]:
        return [BLOCK * pair + lane % BLOCK + lane // BLOCK * _APART for lane in self._order(half)]

    def _order(self, half: int) -> list[int]:
        """Returns which of 64 bytes, of two blocks, the bytes of a register are."""
        unit = self.encoding.layout.scaled // 2
        parts = range(unit * half, BLOCK, 2 * unit)
        return [BLOCK * block + first + i for first in parts for block in (0, 1) for i in range(unit)]

    def constants(self) -> list[str]:
        """Returns the vectors that ``unpacked`` needs, made ahead of all loops."""
        masks = {_mask(plane) for plane in self.encoding.layout.planes}
        return [
            *(f"%shift{amount} = arith.constant dense<{amount}> : {BYTES}" for amount in range(1, 8)),
            *(f"%mask{mask} = arith.constant dense<{mask}> : {BYTES}" for mask in sorted(masks)),
        ]

    def numbers(self) -> list[int]:
        """Returns the index constants that ``loaded`` needs."""
        return [place for plane in self.encoding.layout.planes for place in _places(plane)]

    def loaded(self, w: str) -> list[str]:
        """Returns the lines that load all bytes of the planes and put them in order."""
        lines = []
        for plane in self.encoding.layout.planes:
            for place in _places(plane):
                lines += [
                    f"%bytes{place}_at = arith.addi %at, %c{place} : index",
                    f"%bytes{place} = vector.load %w[%bytes{place}_at] : {w}, {BYTES}",
                ]
            for place, other in sorted({(_place(plane, pair), _place(plane, pair + _PAIRS)) for pair in range(_PAIRS)}):
                second = f"%bytes{other}"
                if place == other:
                    second = f"%bytes{place}_down"
                    lines.append(
                        f"{second} = arith.shrui %bytes{place}, %shift{_APART // plane.span * plane.bits} : {BYTES}"
                    )
                for half in range(2):
                    order = listed(self._order(half))
                    lines.append(
                        f"%of{place}_{half} = vector.shuffle %bytes{place}, {second} {order} : {BYTES}, {BYTES}"
                    )
        return lines

    def unpacked(self) -> list[str]:
        """Returns the lines that make the integers from the values of ``loaded``."""
        lines, planes = [], self.encoding.layout.planes
        for pair in range(_PAIRS):
            for half in range(2):
                name = f"%w{pair}_{half}"
                parts = [name if len(planes) == 1 else f"{name}_plane{i}" for i in range(len(planes))]
                for plane, part in zip(planes, parts, strict=True):
                    lines += _bits(plane, pair, f"%of{_place(plane, pair)}_{half}", part)
                if len(planes) > 1:
                    lines.append(f"{name} = arith.ori {parts[0]}, {parts[1]} : {BYTES}")
        return lines


def has_paired_planes(encoding: Encoding) -> bool:
    """Returns whether the planes of a super-block are as ``PairedPlanes`` reads them."""
    planes = encoding.layout.planes
    return len(planes) <= 2 and all(plane.bits < 8 and plane.span % BLOCK == 0 for plane in planes)


def _places(plane: Plane) -> list[int]:
    """Returns the first byte of each 32 bytes of a plane."""
    return sorted({_place(plane, block) for block in range(2 * _PAIRS)})


def _place(plane: Plane, block: int) -> int:
    """Returns the first byte that has bits of a block."""
    return plane.at + BLOCK * block // plane.run * plane.span + BLOCK * block % plane.span


def _mask(plane: Plane) -> int:
    return (1 << plane.bits) - 1 << plane.up


def _bits(plane: Plane, pair: int, source: str, name: str) -> list[str]:
    """Makes ``name`` of a plane's bits of a pair of blocks, at their position in the integers."""
    down = BLOCK * pair % plane.run // plane.span * plane.bits - plane.up
    lines = []
    if down:
        op = "shrui" if down > 0 else "shli"
        lines.append(f"{name}_moved = arith.{op} {source}, %shift{abs(down)} : {BYTES}")
        source = f"{name}_moved"
    return [*lines, f"{name} = arith.andi {source}, %mask{_mask(plane)} : {BYTES}"]
