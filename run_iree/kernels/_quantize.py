"""Quantization of x to blocks of 32 (``block_quantize`` of the op table), alone or after ``silu(gate) * up``."""

from typing import Final

from lang_core import BLOCK
from lang_core.ops import LEAST_MAGNITUDE
from run_iree.kernels._text import Buffer, CpuKernel, constants, indented, loaded, own_rows, rounded, share

NAME: Final = "vector"
LANES: Final = 16
_GATED_BLOCKS: Final = 32  # blocks of a workgroup; an exponential for each element is worth a second thread

# Constants that the lines of ``quantized`` need.
QUANTIZE_BEFORE: Final = (
    "%quant_none = arith.constant 0.0 : f32",
    "%quant_one = arith.constant 1.0 : f32",
    "%quant_most = arith.constant 127.0 : f32",
    f"%quant_least = arith.constant {LEAST_MAGNITUDE:.17e} : f32",
)


def block_buffers(elements: int, prefix: str = "") -> tuple[Buffer, ...]:
    """Returns q, scale and total for a number of elements."""
    kinds = ("q", elements, "i8"), ("scale", elements // BLOCK, "f32"), ("total", elements // BLOCK, "i32")
    return tuple(Buffer(prefix + name, size, kind) for name, size, kind in kinds)


def quantize_kernel(rows: int, columns: int, dtype: str) -> CpuKernel:
    """Builds x [rows, columns]: q i8 [rows, columns], scale f32 and total i32 [rows, columns / 32]."""
    blocks, x = columns // BLOCK, Buffer("x", rows * columns, dtype)
    lines = [*loaded("low", "%i", x), *loaded("high", "%j", x)]
    return _by_blocks((x,), rows * blocks, blocks, lines)


def silu_quantize_kernel(rows: int, columns: int, dtype: str) -> CpuKernel:
    """Builds gate and up [rows, columns]: silu(gate) * up, both products rounded to the dtype, quantized."""
    given = Buffer("gate", rows * columns, dtype), Buffer("up", rows * columns, dtype)
    lines = [*_gated("low", "%i", given), *_gated("high", "%j", given)]
    return _by_blocks(given, rows * columns // BLOCK, _GATED_BLOCKS, lines)


def _by_blocks(given: tuple[Buffer, ...], blocks: int, wanted: int, lines: list[str]) -> CpuKernel:
    """Builds a kernel with workgroups of ``wanted`` blocks; the lines make ``%low`` of ``%i``, ``%high`` of ``%j``."""
    made = block_buffers(blocks * BLOCK)
    own, workgroups = share(blocks, 1, -(-blocks // wanted))
    body = f"""\
{constants([1, LANES, BLOCK, own, blocks])}
%ones = arith.constant dense<1.0> : vector<16xf32>
{indented(QUANTIZE_BEFORE, 0)}
{own_rows(own, blocks)}
scf.for %block = %first to %end step %c1 {{
  %i = arith.muli %block, %c{BLOCK} : index
  %j = arith.addi %i, %c{LANES} : index
{indented(lines, 2)}
{indented(quantized(made), 2)}
}}
"""
    return CpuKernel(NAME, (*given, *made), workgroups, body)


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


def quantized(made: tuple[Buffer, ...]) -> list[str]:
    """Stores ``%low`` and ``%high``, vector<16xf32>, as block ``%block``, integers from ``%i`` and ``%j`` on."""
    q, scale, total = made
    return f"""\
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
%quant_low_q = arith.trunci %quant_low_whole : vector<16xi32> to vector<16xi8>
%quant_high_q = arith.trunci %quant_high_whole : vector<16xi32> to vector<16xi8>
vector.store %quant_low_q, %{q.name}[%i] : {q.memref}, vector<16xi8>
vector.store %quant_high_q, %{q.name}[%j] : {q.memref}, vector<16xi8>
%quant_sums = arith.addi %quant_low_whole, %quant_high_whole : vector<16xi32>
%quant_sum = vector.reduction <add>, %quant_sums : vector<16xi32> into i32
memref.store %quant_d, %{scale.name}[%block] : {scale.memref}
memref.store %quant_sum, %{total.name}[%block] : {total.memref}""".splitlines()
