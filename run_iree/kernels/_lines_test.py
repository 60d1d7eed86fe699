"""Lines of kernels: text of operations, types of their values, and names that are defined once, above their uses."""

import re

import pytest

from lang_core import CompileError
from run_iree.kernels._lines import Buffer, Lines, Operand, check_names, index
from run_iree.kernels._text import CpuKernel

_W = Buffer("w", 96, "i8")
_LOOP = """\
%c1 = arith.constant 1 : index
%made:2 = scf.for %row = %c0 to %c1 step %c1
    iter_args(%a = %c0, %b = %c1) -> (index, index) {
  %next = arith.addi %a, %row : index
  scf.yield %next, %b : index, index
}
%after = arith.addi %made#0, %made#1 : index"""


def test_operations_have_the_types_of_their_operands() -> None:
    b = Lines()
    low = b.load("low", _W, index(32), 16)
    wide = b.cast("wide", "arith.extsi", b.shuffle("twice", low, low, range(8)), "vector<8xi32>")
    b.store(b.same("more", "arith.addi", wide, wide), Buffer("y", 24, "i32"), index(8))
    b.store(b.extract("one", low, 3), _W, index(5))
    assert (low.kind, wide.kind, b.broadcast("all", b.load("x", _W, index(1)), 4).kind) == (
        "vector<16xi8>",
        "vector<8xi32>",
        "vector<4xi8>",
    )
    assert b == [
        "%low = vector.load %w[%c32] : memref<96xi8>, vector<16xi8>",
        "%twice = vector.shuffle %low, %low [0, 1, 2, 3, 4, 5, 6, 7] : vector<16xi8>, vector<16xi8>",
        "%wide = arith.extsi %twice : vector<8xi8> to vector<8xi32>",
        "%more = arith.addi %wide, %wide : vector<8xi32>",
        "vector.store %more, %y[%c8] : memref<24xi32>, vector<8xi32>",
        "%one = vector.extract %low[3] : i8 from vector<16xi8>",
        "memref.store %one, %w[%c5] : memref<96xi8>",
        "%x = memref.load %w[%c1] : memref<96xi8>",
        "%all = vector.broadcast %x : i8 to vector<4xi8>",
    ]


def test_types_that_differ_are_refused() -> None:
    b = Lines()
    with pytest.raises(CompileError, match=r"%y = arith.addf: expected operands of one type; found %a: f32, %b: f16"):
        b.same("y", "arith.addf", Operand("%a", "f32"), Operand("%b", "f16"))
    with pytest.raises(CompileError, match="store to w: expected i8; found %a: vector<4xi32>"):
        b.store(Operand("%a", "vector<4xi32>"), _W, index(1))
    assert b == []


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("%b : index, index", "%row2 : index, index"), "%row2 is not defined above its use: scf.yield %next, %row2"),
        (("%made#1", "%next"), "%next is not defined above its use: %after"),
        (("%after", "%c1"), "%c1 is defined twice: %c1 = arith.addi"),
        (("%next = arith.addi %a", "%b = arith.addi %a"), "%b is defined twice: %b = arith.addi"),
        (("%c0 to", "%c7 to"), "%c7 is not defined above its use: iter_args"),
    ],
)
def test_a_name_out_of_its_region_is_refused(change: tuple[str, str], message: str) -> None:
    check_names(_LOOP, ["%c0"])
    kernel = CpuKernel("loop", (_W,), 2, _LOOP)
    assert "%after = arith.addi %made#0" in kernel.executable("f")
    with pytest.raises(CompileError, match=re.escape(message)):
        CpuKernel("loop", (_W,), 2, _LOOP.replace(*change)).executable("f")


def test_other_regions_are_left_to_the_compiler() -> None:
    check_names("affine.for %i = 0 to 4 {\n  memref.store %w, %w[%i] : memref<4xi8>\n}", ["%w"])
