"""Negative tests of the ops on block-quantised weights: ``test_<op>_c<n>``."""

import pytest

from lang_core import DTYPES, ENCODINGS, Encoding, f32
from lang_core.ops._refusals import refused

_Q8_0 = ENCODINGS["q8_0"]
_Q4_0 = ENCODINGS["q4_0"]
_Q6_K = ENCODINGS["q6_k"]


@pytest.mark.parametrize("dtype", ["f64", "i8", "bool"])
def test_block_quantize_c1(dtype: str) -> None:
    refused("block_quantize_c1", f"{dtype}[2,64]", (16,), f"the dtype is {dtype}")


@pytest.mark.parametrize("shape", ["", "2,33", "32,0"])
def test_block_quantize_c2(shape: str) -> None:
    refused("block_quantize_c2", f"f32[{shape}]", (16,), r"the shape is \(")


@pytest.mark.parametrize("bits", [0, 4, 32])
def test_block_quantize_c3(bits: int) -> None:
    refused("block_quantize_c3", "f32[2,64]", (bits,), f"bits is {bits}")


@pytest.mark.parametrize(
    "operands",
    [
        "u8[2,1,64] f32[2,2] i32[2,2]",
        "i8[] f32[] i32[]",
        "i8[64] f32[2] i32[2]",
        "i8[2,3,64] f32[2,2] i32[2,2]",
        "i8[2,1,64] f16[2,2] i32[2,2]",
        "i8[2,2,64] f32[2,1] i32[2,2]",
        "i8[2,1,64] f32[2,2] i32[4]",
    ],
)
def test_block_product_c1(operands: str) -> None:
    refused("block_product_c1", f"{operands} i8[5,68]", (_Q8_0, f32), "planes is (i8|u8)")


@pytest.mark.parametrize(
    ("encoding", "operands", "reason"),
    [
        (_Q4_0, "i8[2,1,64] f32[2,2] i32[2,2] i8[5,68]", r"the weight is i8\[5,68\]$"),
        (_Q4_0, "i8[2,1,64] f32[2,2] i32[2,2] i8[5,54]", r"the weight is i8\[5,54\], 96 columns as q4_0$"),
        (_Q4_0, "i8[2,1,64] f32[2,2] i32[2,2] u8[5,36]", "the weight is u8"),
        (_Q4_0, "i8[2,1,64] f32[2,2] i32[2,2] i8[1,5,36]", "the weight is i8"),
        # Eight blocks of x for each super-block.
        (_Q6_K, "i8[2,2,256] f32[2,8] i32[2,8] i8[5,420]", r"the weight is i8\[5,420\], 512 columns as q6_k$"),
    ],
)
def test_block_product_c2(encoding: Encoding, operands: str, reason: str) -> None:
    refused("block_product_c2", operands, (encoding, f32), reason)


@pytest.mark.parametrize("dtype", [kind for kind in DTYPES if not kind.is_floating], ids=str)
def test_block_product_c3(dtype: object) -> None:
    refused("block_product_c3", "i8[2,1,64] f32[2,2] i32[2,2] i8[5,68]", (_Q8_0, dtype), f"the dtype is {dtype}")


@pytest.mark.parametrize("x", ["f64[2,64]", "i8[2,64]", "f32[]"])
def test_packed_linear_c1(x: str) -> None:
    refused("packed_linear_c1", f"{x} i8[5,68]", (_Q8_0, f32, "exact"), r"x is (f64|i8|f32)\[")


@pytest.mark.parametrize(
    ("encoding", "operands", "reason"),
    [
        (_Q4_0, "f32[2,64] i8[5,68]", r"the weight is i8\[5,68\]$"),
        (_Q4_0, "f32[2,64] i8[5,54]", r"the weight is i8\[5,54\], 96 columns as q4_0$"),
        (_Q4_0, "f32[2,64] u8[5,36]", "the weight is u8"),
    ],
)
def test_packed_linear_c2(encoding: Encoding, operands: str, reason: str) -> None:
    refused("packed_linear_c2", operands, (encoding, f32, "exact"), reason)


@pytest.mark.parametrize("dtype", [kind for kind in DTYPES if not kind.is_floating], ids=str)
def test_packed_linear_c3(dtype: object) -> None:
    refused("packed_linear_c3", "f32[2,64] i8[5,68]", (_Q8_0, dtype, "q8"), f"the dtype is {dtype}")


def test_packed_linear_c4() -> None:
    refused("packed_linear_c4", "f32[2,64] i8[5,68]", (_Q8_0, f32, "q4"), "activations is 'q4'")


@pytest.mark.parametrize(
    ("encoding", "packed"),
    [(_Q8_0, "i8[2,33]"), (_Q8_0, "u8[2,34]"), (_Q8_0, "i8[]"), (_Q8_0, "i8[3,0]"), (_Q6_K, "i8[2,34]")],
)
def test_dequantize_c1(encoding: Encoding, packed: str) -> None:
    refused("dequantize_c1", packed, (encoding, f32), rf"(i8|u8)\[.*\] as {encoding.name}")


@pytest.mark.parametrize("dtype", [kind for kind in DTYPES if not kind.is_floating], ids=str)
def test_dequantize_c2(dtype: object) -> None:
    refused("dequantize_c2", "i8[2,34]", (_Q8_0, dtype), f"the dtype is {dtype}")
