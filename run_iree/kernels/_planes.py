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
        """Makes ``%name`` vector<32xi32> of the integers whose first plane is at an index."""
        wide = "vector<32xi32>"
        first = f"{name}_first" if self.planes > 1 else name
        lines = [
            f"%{name}_bytes = vector.load %q[{place}] : {self.q.memref}, vector<32xi8>",
            f"%{first} = arith.extsi %{name}_bytes : vector<32xi8> to {wide}",
        ]
        if self.planes == 1:
            return lines
        return [
            *lines,
            f"%{name}_second_at = arith.addi {place}, %c{self.columns} : index",
            f"%{name}_second_bytes = vector.load %q[%{name}_second_at] : {self.q.memref}, vector<32xi8>",
            f"%{name}_second = arith.extsi %{name}_second_bytes : vector<32xi8> to {wide}",
            f"%{name}_base = arith.constant dense<{PLANE_BASE}> : {wide}",
            f"%{name}_upper = arith.muli %{first}, %{name}_base : {wide}",
            f"%{name} = arith.addi %{name}_upper, %{name}_second : {wide}",
        ]
