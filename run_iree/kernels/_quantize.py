"""Quantization of x to blocks of 32 (``block_quantize`` of the op table), alone or after ``silu(gate) * up``."""

from dataclasses import dataclass
from typing import Final

from lang_core import BLOCK
from lang_core.ops import LARGEST_INTEGER, LEAST_MAGNITUDE, PLANE_BASE
from run_iree.kernels._lines import Buffer
from run_iree.kernels._text import CpuKernel, constants, indented, loaded, own_rows, rounded, share

NAME: Final = "vector"
LANES: Final = 16
_GATED_BLOCKS: Final = 32  # blocks of a workgroup; an exponential for each element is worth a second thread


@dataclass(frozen=True, slots=True)
class Blocks:
    """Result of quantizing x [rows, columns].

    Attributes:
        rows: rows of x.
        columns: columns of x.
        planes: bytes of an integer: 1, or 2 for a high and a low one.
        prefix: beginning of the buffers' names.
    """

    rows: int
    columns: int
    planes: int
    prefix: str = ""

    @property
    def elements(self) -> int:
        """Elements of x."""
        return self.rows * self.columns

    @property
    def buffers(self) -> tuple[Buffer, ...]:
        """q i8 [rows, planes, columns], scale f32 and total i32 [rows, columns / 32]."""
        blocks = self.elements // BLOCK
        kinds = ("q", self.planes * self.elements, "i8"), ("scale", blocks, "f32"), ("total", blocks, "i32")
        return tuple(Buffer(self.prefix + name, size, kind) for name, size, kind in kinds)

    @property
    def before(self) -> list[str]:
        """Constants that the lines of ``quantized`` need."""
        return [
            "%quant_none = arith.constant 0.0 : f32",
            "%quant_one = arith.constant 1.0 : f32",
            f"%quant_most = arith.constant {LARGEST_INTEGER[8 * self.planes]}.0 : f32",
            f"%quant_least = arith.constant {LEAST_MAGNITUDE:.17e} : f32",
            f"%quant_columns = arith.constant {self.columns} : index",
            f"%quant_base = arith.constant dense<{PLANE_BASE}.0> : vector<16xf32>",
            f"%quant_part = arith.constant dense<{1 / PLANE_BASE:.17e}> : vector<16xf32>",
        ]


def quantize_kernel(blocks: Blocks, dtype: str) -> CpuKernel:
    """Builds x [rows, columns]: q, scale and total."""
    x = Buffer("x", blocks.elements, dtype)
    lines = [*loaded("low", "%i", x), *loaded("high", "%j", x)]
    return _by_blocks((x,), blocks, blocks.columns // BLOCK, lines)


def silu_quantize_kernel(blocks: Blocks, dtype: str) -> CpuKernel:
    """Builds gate and up [rows, columns]: silu(gate) * up, both products rounded to the dtype, quantized."""
    given = Buffer("gate", blocks.elements, dtype), Buffer("up", blocks.elements, dtype)
    lines = [*_gated("low", "%i", given), *_gated("high", "%j", given)]
    return _by_blocks(given, blocks, _GATED_BLOCKS, lines)


def _by_blocks(given: tuple[Buffer, ...], made: Blocks, wanted: int, lines: list[str]) -> CpuKernel:
    """Builds a kernel with workgroups of ``wanted`` blocks; the lines make ``%low`` of ``%i``, ``%high`` of ``%j``."""
    blocks = made.elements // BLOCK
    own, workgroups = share(blocks, 1, -(-blocks // wanted))
    body = f"""\
{constants([1, LANES, BLOCK, own, blocks])}
%ones = arith.constant dense<1.0> : vector<16xf32>
{indented(made.before, 0)}
{own_rows(own, blocks)}
scf.for %block = %first to %end step %c1 {{
  %i = arith.muli %block, %c{BLOCK} : index
  %j = arith.addi %i, %c{LANES} : index
{indented(lines, 2)}
{indented(quantized(made), 2)}
}}
"""
    return CpuKernel(NAME, (*given, *made.buffers), workgroups, body)


def _gated(name: str, place: str, given: tuple[Buffer, ...]) -> list[str]:
    """Makes ``%<name>`` vector<16xf32> of silu(gate) * up."""
    gate, up = given
    kind = "vector<16xf32>"
    return [
        *loaded(f"{name}_gate", place, gate),
        *loaded(f"{name}_up", place, up),
        f"%{name}_minus = arith.negf %{name}_gate : {kind}",
        f"%{name}_power = math.exp %{name}_minus : {kind}",
        f"%{name}_above = arith.addf %{name}_power, %ones : {kind}",
        f"%{name}_curve = arith.divf %ones, %{name}_above : {kind}",
        *rounded(f"{name}_active", f"arith.mulf %{name}_gate, %{name}_curve", gate.kind),
        *rounded(name, f"arith.mulf %{name}_active, %{name}_up", gate.kind),
    ]


def quantized(made: Blocks) -> list[str]:
    """Stores ``%low`` and ``%high``, vector<16xf32>, as block ``%block``, with elements of x from ``%i`` on."""
    _, scale, total = made.buffers
    return (
        f"""\
%quant_low_size = math.absf %low : vector<16xf32>
%quant_high_size = math.absf %high : vector<16xf32>
%quant_size = arith.maximumf %quant_low_size, %quant_high_size : vector<16xf32>
%quant_found = vector.reduction <maximumf>, %quant_size : vector<16xf32> into f32
%quant_small = arith.cmpf olt, %quant_found, %quant_least : f32
%quant_largest = arith.select %quant_small, %quant_none, %quant_found : f32
%quant_d = arith.divf %quant_largest, %quant_most : f32
%quant_divisor = arith.select %quant_small, %quant_one, %quant_d : f32
%quant_quotient = arith.divf %quant_one, %quant_divisor : f32
%quant_inverse = arith.select %quant_small, %quant_none, %quant_quotient : f32
%quant_by = vector.broadcast %quant_inverse : f32 to vector<16xf32>
%quant_low_scaled = arith.mulf %low, %quant_by : vector<16xf32>
%quant_high_scaled = arith.mulf %high, %quant_by : vector<16xf32>
%quant_low_round = math.roundeven %quant_low_scaled : vector<16xf32>
%quant_high_round = math.roundeven %quant_high_scaled : vector<16xf32>
%quant_low_whole = arith.fptosi %quant_low_round : vector<16xf32> to vector<16xi32>
%quant_high_whole = arith.fptosi %quant_high_round : vector<16xf32> to vector<16xi32>
%quant_sums = arith.addi %quant_low_whole, %quant_high_whole : vector<16xi32>
%quant_sum = vector.reduction <add>, %quant_sums : vector<16xi32> into i32
memref.store %quant_d, %{scale.name}[%block] : {scale.memref}
memref.store %quant_sum, %{total.name}[%block] : {total.memref}""".splitlines()
        + _planes_stored(made)
    )


def _planes_stored(made: Blocks) -> list[str]:
    """Stores the integers ``%quant_<side>_round`` and ``%quant_<side>_whole`` of a block, plane by plane."""
    q = made.buffers[0]
    lines = [
        "%quant_row = arith.divui %i, %quant_columns : index",
        f"%quant_above = arith.constant {made.columns * (made.planes - 1)} : index",
        "%quant_skip = arith.muli %quant_row, %quant_above : index",
        "%quant_at0 = arith.addi %i, %quant_skip : index",
        "%quant_at1 = arith.addi %quant_at0, %quant_columns : index",
        f"%quant_half = arith.constant {LANES} : index",
    ]
    for side in ("low", "high"):
        name, digits = f"%quant_{side}", [f"%quant_{side}_whole"]
        if made.planes > 1:
            digits = [f"{name}_first", f"{name}_second"]
            lines += [
                f"{name}_ratio = arith.mulf {name}_round, %quant_part : vector<16xf32>",
                f"{name}_digit = math.roundeven {name}_ratio : vector<16xf32>",
                f"{name}_first = arith.fptosi {name}_digit : vector<16xf32> to vector<16xi32>",
                f"{name}_upper = arith.mulf {name}_digit, %quant_base : vector<16xf32>",
                f"{name}_rest = arith.subf {name}_round, {name}_upper : vector<16xf32>",
                f"{name}_second = arith.fptosi {name}_rest : vector<16xf32> to vector<16xi32>",
            ]
        for plane, digit in enumerate(digits):
            place = f"%quant_at{plane}"
            if side == "high":
                place = f"%quant_side{plane}"
                lines.append(f"{place} = arith.addi %quant_at{plane}, %quant_half : index")
            lines += [
                f"{name}_q{plane} = arith.trunci {digit} : vector<16xi32> to vector<16xi8>",
                f"vector.store {name}_q{plane}, %{q.name}[{place}] : {q.memref}, vector<16xi8>",
            ]
    return lines
