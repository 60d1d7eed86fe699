"""Integers of x in planes, as ``block_quantize`` gives them."""

from dataclasses import dataclass

from lang_core.ops import PLANE_BASE
from run_iree.kernels._text import Buffer


@dataclass(frozen=True, slots=True)
class XPlanes:
    """Integers of x in planes.

    Attributes:
        q: buffer [rows, planes, columns].
        planes: number of planes.
        columns: columns of x.
    """

    q: Buffer
    planes: int
    columns: int

    def block(self, name: str, place: str) -> list[str]:
        """Makes ``%name`` vector<32xi32> of the integers with their first plane at an index.

        They are put together in 16 bits, so that compilers see products of 16 bits, for which CPUs have instructions.
        """
        words, wide = "vector<32xi16>", "vector<32xi32>"
        lines = [f"%{name}_bytes = vector.load %q[{place}] : {self.q.memref}, vector<32xi8>"]
        if self.planes == 1:
            return [*lines, f"%{name} = arith.extsi %{name}_bytes : vector<32xi8> to {wide}"]
        return [
            *lines,
            f"%{name}_second_at = arith.addi {place}, %c{self.columns} : index",
            f"%{name}_second_bytes = vector.load %q[%{name}_second_at] : {self.q.memref}, vector<32xi8>",
            f"%{name}_first = arith.extsi %{name}_bytes : vector<32xi8> to {words}",
            f"%{name}_second = arith.extsi %{name}_second_bytes : vector<32xi8> to {words}",
            f"%{name}_base = arith.constant dense<{PLANE_BASE}> : {words}",
            f"%{name}_upper = arith.muli %{name}_first, %{name}_base : {words}",
            f"%{name}_words = arith.addi %{name}_upper, %{name}_second : {words}",
            f"%{name} = arith.extsi %{name}_words : {words} to {wide}",
        ]
