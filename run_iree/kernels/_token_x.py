"""x of several tokens, prepared once for all workgroups of a product, as the steps along a row of the weights read it.

The steps of a kernel for one token prepare x in memories on the stack. Here each token has such memories for each part
of a row, side by side in one buffer, and after all parts the data that the steps read unchanged.
"""

from dataclasses import dataclass
from typing import Final

from lang_core import BLOCK
from run_iree.kernels._lines import Buffer, element_bytes
from run_iree.kernels._packed_matvec import RowSteps
from run_iree.kernels._text import Arrangement, CpuKernel, constants, indented
from run_iree.kernels._token_lines import View

_SUBSPAN: Final = "stream.binding.subspan %b_all_x"


@dataclass(frozen=True, slots=True)
class TokenX:
    """x of several tokens.

    Attributes:
        rows: number of tokens.
        columns: columns of x.
        given: form of a token's x.
        steps: steps along a row; x is prepared one part at a time.
        width: steps of a range of a row, of which there are whole parts but for the end; see ``parts``.
        count: steps of a row.
    """

    rows: int
    columns: int
    given: tuple[Buffer, ...]
    steps: RowSteps
    width: int
    count: int

    @property
    def numbers(self) -> list[int]:
        """Index constants that the lines need."""
        return [self.rows, self.width, self.part, self.parts, self.count, self.part_bytes, BLOCK]

    @property
    def part(self) -> int:
        """Steps of a part."""
        assert self.steps.most is not None
        return self.steps.most

    @property
    def parts(self) -> int:
        """Parts of a range."""
        return -(-self.width // self.part)

    @property
    def all_parts(self) -> int:
        """Parts of a row."""
        return -(-self.count // self.width) * self.parts

    @property
    def _copied(self) -> list[Buffer]:
        lines = "\n".join([*self.steps.of_x, *self.steps.of_row])
        return [buffer for buffer in self.given if f"load %{buffer.name}[" in lines]

    @property
    def part_bytes(self) -> int:
        """Bytes of a part of a token."""
        return sum(memory.bytes for memory in self.steps.kept)

    @property
    def made(self) -> Buffer:
        """Buffer of all."""
        size = self.all_parts * self.rows * self.part_bytes + self.rows * sum(buffer.bytes for buffer in self._copied)
        return Buffer("all_x", size, "i8")

    def kind(self, kind: str) -> str:
        """Returns the type of the buffer's view with elements of a kind."""
        return f"memref<{self.made.elements // element_bytes(kind)}x{kind}>"

    def views(self) -> dict[str, View]:
        """Returns the memories that steps read."""
        views = {memory.name: self._view(memory, self.part_bytes) for memory in self.steps.kept}
        size = sum(buffer.bytes for buffer in self._copied)
        return {**views, **{buffer.name: self._view(buffer, size) for buffer in self._copied}}

    def _view(self, memory: Buffer, stride: int) -> View:
        size = element_bytes(memory.kind)
        return View(f"x_{memory.kind}", self.kind(memory.kind), f"{memory.name}_base", stride // size)

    def viewed(self) -> list[str]:
        """Makes the buffer's views."""
        kinds = sorted({memory.kind for memory in (*self.steps.kept, *self._copied)})
        return [f"%x_{kind} = {_SUBSPAN}[%c0] : !stream.binding -> {self.kind(kind)}" for kind in kinds]

    def based(self) -> list[str]:
        """Makes the ``base`` of each view, for the tile with the first token ``%token`` and the part ``%x_part``."""
        lines = [
            f"%part_tokens = arith.muli %x_part, %c{self.rows} : index",
            "%part_token = arith.addi %part_tokens, %token : index",
        ]
        at = 0
        for memory in self.steps.kept:
            lines += self._based(memory, "%part_token", self.part_bytes, at)
            at += memory.bytes
        at = self.all_parts * self.rows * self.part_bytes
        for buffer in self._copied:
            lines += self._based(buffer, "%token", sum(buffer.bytes for buffer in self._copied), at)
            at += buffer.bytes
        return lines

    def _based(self, memory: Buffer, number: str, stride: int, at: int) -> list[str]:
        size, name = element_bytes(memory.kind), memory.name
        return [
            f"%{name}_stride = arith.constant {stride // size} : index",
            f"%{name}_first = arith.constant {at // size} : index",
            f"%{name}_skip = arith.muli {number}, %{name}_stride : index",
            f"%{name}_base = arith.addi %{name}_skip, %{name}_first : index",
        ]

    def arrangement(self, name: str) -> Arrangement:
        """Returns the dispatch that prepares q, scale and total of all tokens; a workgroup has a part of a token."""
        steps, parts = self.steps, self.all_parts
        before = [
            "%own = stream.dispatch.workgroup.id[0] : index",
            f"%all_parts = arith.constant {parts} : index",
            "%token = arith.divui %own, %all_parts : index",
            "%x_part = arith.remui %own, %all_parts : index",
        ]
        offsets = {}
        for buffer in self.given:
            offsets[buffer.name] = f"%{buffer.name}_of"
            before += [
                f"%{buffer.name}_bytes = arith.constant {buffer.elements * element_bytes(buffer.kind)} : index",
                f"%{buffer.name}_of = arith.muli %token, %{buffer.name}_bytes : index",
            ]
        at, memories = 0, list[str]()
        for memory in steps.kept:
            memories += [
                f"%{memory.name}_skip = arith.constant {at} : index",
                f"%{memory.name}_at = arith.addi %part_begin, %{memory.name}_skip : index",
                f"%{memory.name} = {_SUBSPAN}[%{memory.name}_at] : !stream.binding -> {memory.memref}",
            ]
            at += memory.bytes
        numbers = [1, steps.width, *self.numbers, *steps.numbers]
        body = f"""\
{constants(numbers)}
%part_tokens = arith.muli %x_part, %c{self.rows} : index
%part_token = arith.addi %part_tokens, %token : index
%part_begin = arith.muli %part_token, %c{self.part_bytes} : index
{indented(self.step_range(), 0)}
{indented([*memories, *steps.before, *steps.arranged, *self._copies()], 0)}
"""
        buffers = (*self.given, self.made)
        kernel = CpuKernel("tokens", buffers, self.rows * parts, body, before=before, offsets=offsets)
        return Arrangement(name, kernel)

    def step_range(self) -> list[str]:
        """Makes ``%first_step`` and ``%end_step`` of ``%x_part``."""
        return [
            f"%range = arith.divui %x_part, %c{self.parts} : index",
            f"%of_range = arith.remui %x_part, %c{self.parts} : index",
            f"%range_first = arith.muli %range, %c{self.width} : index",
            f"%range_after = arith.addi %range_first, %c{self.width} : index",
            f"%range_end = arith.minui %range_after, %c{self.count} : index",
            f"%part_skip = arith.muli %of_range, %c{self.part} : index",
            "%part_first = arith.addi %range_first, %part_skip : index",
            "%first_step = arith.minui %part_first, %range_end : index",
            f"%part_after = arith.addi %part_first, %c{self.part} : index",
            "%end_step = arith.minui %part_after, %range_end : index",
        ]

    def _copies(self) -> list[str]:
        """Copies the part's share of the data that steps read unchanged."""
        lines, at = list[str](), self.all_parts * self.rows * self.part_bytes
        size = sum(buffer.bytes for buffer in self._copied)
        for buffer in self._copied:
            name, kind, few = buffer.name, self.kind(buffer.kind), f"vector<{BLOCK}xi8>"
            lines += self._based(buffer, "%token", size, at)
            at += buffer.bytes
            lines.append(f"%x_{name} = {_SUBSPAN}[%c0] : !stream.binding -> {kind}")
            blocks = self.steps.width // BLOCK
            numbers = [
                f"%{name}_blocks = arith.constant {blocks} : index",
                f"%{name}_begin = arith.muli %first_step, %{name}_blocks : index",
                f"%{name}_end = arith.muli %end_step, %{name}_blocks : index",
            ]
            if buffer.kind == "i8":
                inner = []
                for plane in range(buffer.elements // self.columns):
                    inner += [
                        f"  %column{plane} = arith.muli %block, %c{BLOCK} : index",
                        f"  %plane{plane} = arith.constant {plane * self.columns} : index",
                        f"  %from{plane} = arith.addi %column{plane}, %plane{plane} : index",
                        f"  %to{plane} = arith.addi %{name}_base, %from{plane} : index",
                        f"  %some{plane} = vector.load %{name}[%from{plane}] : {buffer.memref}, {few}",
                        f"  vector.store %some{plane}, %x_{name}[%to{plane}] : {kind}, {few}",
                    ]
            else:
                inner = [
                    f"  %one = memref.load %{name}[%block] : {buffer.memref}",
                    f"  %to = arith.addi %{name}_base, %block : index",
                    f"  memref.store %one, %x_{name}[%to] : {kind}",
                ]
            lines += [*numbers, f"scf.for %block = %{name}_begin to %{name}_end step %c1 {{", *inner, "}"]
        return lines
