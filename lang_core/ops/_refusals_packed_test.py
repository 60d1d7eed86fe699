"""Negative tests of the ops on block-quantised weights: ``test_<op>_c<n>``."""

import pytest

from lang_core import DTYPES, ENCODINGS, f32
from lang_core.ops._refusals import refused

_Q8_0 = ENCODINGS["q8_0"]
_Q4_0 = ENCODINGS["q4_0"]
_Q6_K = ENCODINGS["q6_k"]


@pytest.mark.parametrize("dtype", ["f64", "i8", "bool"])
def test_block_quantize_c1(dtype: str) -> None:
    refused("block_quantize_c1", f"{dtype}[2,64]", (), f"the dtype is {dtype}")


@pytest.mark.parametrize("shape", ["", "2,33", "32,0"])
def test_block_quantize_c2(shape: str) -> None:
    refused("block_quantize_c2", f"f32[{shape}]", (), r"the shape is \(")


@pytest.mark.parametrize(
    "operands",
    [
        "u8[2,64] f32[2,2] i32[2,2]",
        "i8[] f32[] i32[]",
        "i8[2,64] f16[2,2] i32[2,2]",
        "i8[2,64] f32[2,1] i32[2,2]",
        "i8[2,64] f32[2,2] i32[4]",
    ],
)
def test_packed_linear_c1(operands: str) -> None:
    refused("packed_linear_c1", f"{operands} i8[5,68]", (_Q8_0, f32), "q is (i8|u8)")


@pytest.mark.parametrize(
    ("weight", "found"),
    [
        ("i8[5,68]", r"the weight is i8\[5,68\]$"),
        ("i8[5,54]", r"the weight is i8\[5,54\], 96 columns as q4_0$"),
        ("u8[5,36]", "the weight is u8"),
        ("i8[1,5,36]", "the weight is i8"),
    ],
)
def test_packed_linear_c2(weight: str, found: str) -> None:
    refused("packed_linear_c2", f"i8[2,64] f32[2,2] i32[2,2] {weight}", (_Q4_0, f32), found)


def test_packed_linear_c2_of_super_blocks() -> None:
    """Eight blocks of x for each of them."""
    weight = r"the weight is i8\[5,420\], 512 columns as q6_k$"
    refused("packed_linear_c2", "i8[2,256] f32[2,8] i32[2,8] i8[5,420]", (_Q6_K, f32), weight)


@pytest.mark.parametrize("dtype", [each for each in DTYPES if not each.is_floating], ids=str)
def test_packed_linear_c3(dtype: object) -> None:
    refused("packed_linear_c3", "i8[2,64] f32[2,2] i32[2,2] i8[5,68]", (_Q8_0, dtype), f"the dtype is {dtype}")


@pytest.mark.parametrize("packed", ["i8[2,33]", "u8[2,34]", "i8[]", "i8[3,0]"])
def test_dequantize_c1(packed: str) -> None:
    refused("dequantize_c1", packed, (_Q8_0, f32), r"(i8|u8)\[.*\] as q8_0")


def test_dequantize_c1_of_super_blocks() -> None:
    refused("dequantize_c1", "i8[2,34]", (_Q6_K, f32), r"i8\[2,34\] as q6_k")


@pytest.mark.parametrize("dtype", [each for each in DTYPES if not each.is_floating], ids=str)
def test_dequantize_c2(dtype: object) -> None:
    refused("dequantize_c2", "i8[2,34]", (_Q8_0, dtype), f"the dtype is {dtype}")
