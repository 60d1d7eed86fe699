"""RMSNorm of rows and the quantization of its result, in one dispatch instead of three."""

from dataclasses import dataclass
from typing import Final

from lang_core import BLOCK
from run_iree.kernels._lines import Buffer
from run_iree.kernels._quantize import LANES, NAME, Blocks, quantized
from run_iree.kernels._text import (
    CpuKernel,
    constants,
    indented,
    largest_divisor,
    loaded,
    own_rows,
    results,
    rounded,
    share,
    total,
)

_APART: Final = 4  # sums of a row that do not wait for each other
_VECTOR: Final = "vector<16xf32>"
_ELEMENTS: Final = 2048  # of a workgroup, at least


@dataclass(frozen=True, slots=True)
class Norm:
    """Norm of x [rows, columns].

    Attributes:
        rows: rows of x.
        columns: columns of x.
        dtype: dtype of x, and of the result before it is quantized.
        weight: dtype of the weight; None without one.
        centred: whether the factor is 1 + weight and the product is rounded once; else x is rounded before that.
        eps: number that is added to the mean of squares.
        planes: planes of the result; see ``Blocks``.
    """

    rows: int
    columns: int
    dtype: str
    weight: str | None
    centred: bool
    eps: float
    planes: int


def norm_kernel(norm: Norm) -> CpuKernel:
    """Builds x, and the weight, if any: q, scale and total, as ``quantize_kernel``."""
    rows, columns = norm.rows, norm.columns
    x = Buffer("x", rows * columns, norm.dtype)
    weights = () if norm.weight is None else (Buffer("weight", columns, norm.weight),)
    made = Blocks(rows, columns, norm.planes)
    own, workgroups = share(rows, 1, -(-x.elements // _ELEMENTS))
    apart = largest_divisor(columns // LANES, _APART)
    every = range(apart)
    kinds = ", ".join([_VECTOR] * apart)
    numbers = [1, LANES, BLOCK, columns, own, rows, *(LANES * i for i in range(apart + 1))]
    body = f"""\
{constants(numbers)}
{indented(made.before, 0)}
%zeros = arith.constant dense<0.0> : {_VECTOR}
%ones = arith.constant dense<1.0> : {_VECTOR}
%count = arith.constant {float(columns):.17e} : f32
%eps = arith.constant {norm.eps:.17e} : f32
{own_rows(own, rows)}
scf.for %row = %first to %end step %c1 {{
  %begin = arith.muli %row, %c{columns} : index
  {"%made" if apart == 1 else f"%made:{apart}"} = scf.for %at = %c0 to %c{columns} step %c{LANES * apart}
      iter_args({", ".join(f"%sum{i} = %zeros" for i in every)}) -> ({kinds}) {{
{indented([line for i in every for line in _square(i, x)], 4)}
    scf.yield {", ".join(f"%next{i}" for i in every)} : {kinds}
  }}
{indented(total("squares", results("%made", apart)), 2)}
  %mean = arith.divf %squares, %count : f32
  %above = arith.addf %mean, %eps : f32
  %root = math.sqrt %above : f32
  %reciprocal = arith.divf %quant_one, %root : f32
  %by_row = vector.broadcast %reciprocal : f32 to {_VECTOR}
  scf.for %at = %c0 to %c{columns} step %c{BLOCK} {{
{indented(_block(norm, x, weights, made), 4)}
  }}
}}
"""
    return CpuKernel(NAME, (x, *weights, *made.buffers), workgroups, body)


def _square(i: int, x: Buffer) -> list[str]:
    """Makes ``%next<i>``, the sum with the squares of sixteen more elements."""
    return [
        f"%in_row{i} = arith.addi %at, %c{LANES * i} : index",
        f"%x_at{i} = arith.addi %begin, %in_row{i} : index",
        *loaded(f"x{i}", f"%x_at{i}", x),
        f"%next{i} = math.fma %x{i}, %x{i}, %sum{i} : {_VECTOR}",
    ]


def _block(norm: Norm, x: Buffer, weights: tuple[Buffer, ...], made: Blocks) -> list[str]:
    """Normalizes and quantizes the block of the row's columns from ``%at`` on."""
    return [
        "%i = arith.addi %begin, %at : index",
        f"%j = arith.addi %i, %c{LANES} : index",
        f"%at_high = arith.addi %at, %c{LANES} : index",
        *_normed("low", ("%i", "%at"), norm, x, weights),
        *_normed("high", ("%j", "%at_high"), norm, x, weights),
        f"%block = arith.divui %i, %c{BLOCK} : index",
        *quantized(made),
    ]


def _normed(name: str, places: tuple[str, str], norm: Norm, x: Buffer, weights: tuple[Buffer, ...]) -> list[str]:
    """Makes ``%<name>``, sixteen normalized elements in f32: x from the first place on, weights from the second."""
    lines = loaded(f"{name}_x", places[0], x)
    scaled = f"arith.mulf %{name}_x, %by_row"
    if not weights:
        return [*lines, *rounded(name, scaled, norm.dtype)]
    (weight,) = weights
    lines += loaded(f"{name}_w", places[1], weight)
    if norm.centred:
        return [
            *lines,
            f"%{name}_factor = arith.addf %{name}_w, %ones : {_VECTOR}",
            f"%{name}_normed = {scaled} : {_VECTOR}",
            *rounded(name, f"arith.mulf %{name}_factor, %{name}_normed", norm.dtype),
        ]
    factor = f"%{name}_w"
    if norm.dtype not in ("f32", weight.kind):
        lines += rounded(f"{name}_factor", f"arith.mulf %{name}_w, %ones", norm.dtype)
        factor = f"%{name}_factor"
    return [
        *lines,
        *rounded(f"{name}_normed", scaled, norm.dtype),
        *rounded(name, f"arith.mulf {factor}, %{name}_normed", norm.dtype),
    ]
