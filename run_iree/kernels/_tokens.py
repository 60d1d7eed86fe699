"""Sizes of tokens as products of several tokens read them: word by word, those of a tile beside each other.

A tile is two registers of tokens; the last one may be one register, padded with copies of the last token. Words of a
part of columns lie together for all tiles.
"""

from dataclasses import dataclass

from run_iree.kernels._lines import Buffer


@dataclass(frozen=True, slots=True)
class Tokens:
    """Sizes of arranged tokens.

    Attributes:
        rows: number of tokens, T.
        columns: number of columns, K, a multiple of 32.
        part: columns of a part.
        depth: words of a part for each token.
        kind: type of a word.
        lanes: tokens of a register, 8 or 16.
        accumulators: f32 sums of a result that take its blocks of 32 by turns, and are added up last. A part has blocks
            of one: with eight, blocks 0, 8, 16, .. come first, then 1, 9, 17, ..
    """

    rows: int
    columns: int
    part: int
    depth: int
    kind: str
    lanes: int
    accumulators: int = 1

    @property
    def parts(self) -> int:
        """Parts of an accumulator."""
        return self.columns // self.part // self.accumulators

    @property
    def tile(self) -> int:
        """Tokens of a tile."""
        return 2 * self.lanes

    @property
    def registers(self) -> int:
        """Registers of a word of all tokens."""
        return -(-self.rows // self.lanes)

    @property
    def tiles(self) -> int:
        """Number of tiles of two registers."""
        return self.registers // 2

    @property
    def rest(self) -> bool:
        """True if there is a tile of one register."""
        return self.registers % 2 == 1

    @property
    def part_words(self) -> int:
        """Words of a part of all tokens."""
        return self.depth * self.registers * self.lanes

    @property
    def made(self) -> Buffer:
        """Buffer [K / part, tiles, depth, 2 * lanes], with [depth, lanes] for a tile of one register."""
        return Buffer("x", self.columns // self.part * self.part_words, self.kind)

    @property
    def words(self) -> str:
        """Type of a register of words."""
        return f"vector<{self.lanes}x{self.kind}>"

    @property
    def floats(self) -> str:
        """Type of a register of f32."""
        return f"vector<{self.lanes}xf32>"

    @property
    def integers(self) -> str:
        """Type of a register of i32."""
        return f"vector<{self.lanes}xi32>"

    @property
    def bits(self) -> tuple[int, ...]:
        """Bits of the numbers of lanes, for ``turned``."""
        return tuple(1 << i for i in range(self.lanes.bit_length() - 1))
