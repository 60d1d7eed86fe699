"""Products with packed weights for CPUs of any kind: vectors of eight, which every compiler backend takes apart."""

from typing import Final

from lang_core import BLOCK, Encoding
from run_iree.kernels._packed_row import half, packed_buffers, signed_block, unsigned_offset
from run_iree.kernels._text import (
    Kernel,
    constants,
    indented,
    listed,
    own_rows,
    share,
    stored,
    wanted_workgroups,
)

NAME: Final = "vector"


def vector_kernel(rows: int, outputs: int, columns: int, encoding: Encoding, dtype: str) -> Kernel:
    """q i8 [rows, columns], scale f32, total i32 [rows, columns / 32], w [outputs, bytes]: y [rows, outputs]."""
    buffers = packed_buffers(rows, outputs, columns, encoding, dtype)
    blocks, size = columns // BLOCK, encoding.block_bytes
    each, workgroups = share(outputs, 1, wanted_workgroups(buffers[3].elements))
    w = f"memref<{outputs * blocks * size}xi8>"
    numbers = [1, 2, BLOCK, size, blocks * size, columns, blocks, each, outputs, rows]
    body = f"""\
{constants(numbers)}
%nibble = arith.constant dense<15> : vector<16xi8>
%offset = arith.constant dense<{unsigned_offset(encoding)}> : vector<32xi8>
%four = arith.constant dense<4> : vector<16xi8>
%none = arith.constant dense<0.0> : vector<8xf32>
{own_rows(each, outputs)}
scf.for %row = %first to %end step %c1 {{
  %begin = arith.muli %row, %c{blocks * size} : index
  scf.for %token = %c0 to %c{rows} step %c1 {{
    %x_begin = arith.muli %token, %c{columns} : index
    %s_begin = arith.muli %token, %c{blocks} : index
    %made = scf.for %block = %c0 to %c{blocks} step %c1 iter_args(%sum = %none) -> (vector<8xf32>) {{
      %in_row = arith.muli %block, %c{size} : index
      %at = arith.addi %begin, %in_row : index
      %q_at = arith.addi %at, %c2 : index
{indented(half("half", "%at", w), 6)}
      %float = arith.extf %half : vector<1xf16> to vector<1xf32>
      %w_scale = vector.extract %float[0] : f32 from vector<1xf32>
{indented(signed_block(encoding, "%q_at", "signed", w), 6)}
      %in_x = arith.muli %block, %c{BLOCK} : index
      %x_at = arith.addi %x_begin, %in_x : index
      %s_at = arith.addi %s_begin, %block : index
      %x = vector.load %q[%x_at] : memref<{rows * columns}xi8>, vector<32xi8>
      %x_wide = arith.extsi %x : vector<32xi8> to vector<32xi32>
      %w_wide = arith.extsi %signed : vector<32xi8> to vector<32xi32>
      %products = arith.muli %x_wide, %w_wide : vector<32xi32>
      %even = vector.shuffle %products, %products {listed(range(0, 32, 2))} : vector<32xi32>, vector<32xi32>
      %odd = vector.shuffle %products, %products {listed(range(1, 32, 2))} : vector<32xi32>, vector<32xi32>
      %pairs = arith.addi %even, %odd : vector<16xi32>
      %low = vector.shuffle %pairs, %pairs {listed(range(8))} : vector<16xi32>, vector<16xi32>
      %high = vector.shuffle %pairs, %pairs {listed(range(8, 16))} : vector<16xi32>, vector<16xi32>
      %dot = arith.addi %low, %high : vector<8xi32>
      %dot_float = arith.sitofp %dot : vector<8xi32> to vector<8xf32>
      %x_scale = memref.load %scale[%s_at] : memref<{rows * blocks}xf32>
      %both = arith.mulf %w_scale, %x_scale : f32
      %all = vector.broadcast %both : f32 to vector<8xf32>
      %next = math.fma %dot_float, %all, %sum : vector<8xf32>
      scf.yield %next : vector<8xf32>
    }}
    %found = vector.reduction <add>, %made : vector<8xf32> into f32
    %line = arith.muli %token, %c{outputs} : index
    %place = arith.addi %line, %row : index
{indented(stored("found", "%place", buffers[-1]), 4)}
  }}
}}
"""
    return Kernel(NAME, buffers, workgroups, body)
