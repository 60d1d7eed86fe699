"""x in blocks of 32, as integers, scales and sums: ``block_quantize`` of the op table."""

from compile_hlo.iree.kernels._text import Buffer, Kernel, constants, indented, loaded
from lang_core import BLOCK
from lang_core.ops import LEAST_MAGNITUDE

_LANES = 16


def quantize_kernel(rows: int, columns: int, dtype: str) -> Kernel:
    """x [rows, columns] to q i8 [rows, columns], scale f32 and total i32 [rows, columns / 32]; by rows."""
    blocks = columns // BLOCK
    y = f"memref<{rows * columns}xi8>"
    buffers = (
        Buffer("x", rows * columns, dtype),
        Buffer("q", rows * columns, "i8"),
        Buffer("scale", rows * blocks, "f32"),
        Buffer("total", rows * blocks, "i32"),
    )
    body = f"""\
{constants([1, _LANES, BLOCK, blocks])}
%none = arith.constant 0.0 : f32
%one = arith.constant 1.0 : f32
%most = arith.constant 127.0 : f32
%least = arith.constant {LEAST_MAGNITUDE:.17e} : f32
%first = arith.muli %workgroup, %c{blocks} : index
%end = arith.addi %first, %c{blocks} : index
scf.for %block = %first to %end step %c1 {{
  %i = arith.muli %block, %c{BLOCK} : index
  %j = arith.addi %i, %c{_LANES} : index
{indented(loaded("low", "%i", buffers[0]), 2)}
{indented(loaded("high", "%j", buffers[0]), 2)}
  %low_size = math.absf %low : vector<16xf32>
  %high_size = math.absf %high : vector<16xf32>
  %size = arith.maximumf %low_size, %high_size : vector<16xf32>
  %found = vector.reduction <maximumf>, %size : vector<16xf32> into f32
  %small = arith.cmpf olt, %found, %least : f32
  %largest = arith.select %small, %none, %found : f32
  %d = arith.divf %largest, %most : f32
  %divisor = arith.select %small, %one, %d : f32
  %quotient = arith.divf %one, %divisor : f32
  %inverse = arith.select %small, %none, %quotient : f32
  %by = vector.broadcast %inverse : f32 to vector<16xf32>
  %low_scaled = arith.mulf %low, %by : vector<16xf32>
  %high_scaled = arith.mulf %high, %by : vector<16xf32>
  %low_round = math.roundeven %low_scaled : vector<16xf32>
  %high_round = math.roundeven %high_scaled : vector<16xf32>
  %low_wide = arith.fptosi %low_round : vector<16xf32> to vector<16xi32>
  %high_wide = arith.fptosi %high_round : vector<16xf32> to vector<16xi32>
  %low_q = arith.trunci %low_wide : vector<16xi32> to vector<16xi8>
  %high_q = arith.trunci %high_wide : vector<16xi32> to vector<16xi8>
  vector.store %low_q, %q[%i] : {y}, vector<16xi8>
  vector.store %high_q, %q[%j] : {y}, vector<16xi8>
  %sums = arith.addi %low_wide, %high_wide : vector<16xi32>
  %sum = vector.reduction <add>, %sums : vector<16xi32> into i32
  memref.store %d, %scale[%block] : memref<{rows * blocks}xf32>
  memref.store %sum, %total[%block] : memref<{rows * blocks}xi32>
}}
"""
    return Kernel("vector", buffers, rows, body)
