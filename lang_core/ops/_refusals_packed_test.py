"""Negative tests of the ops on block-quantised weights: ``test_<op>_c<n>``."""

from typing import Any

import pytest

from lang_core import DTYPES, ENCODINGS, Encoding, f32
from lang_core.ops._refusals_testing import refused

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


@pytest.mark.parametrize("dtype", [kind for kind in DTYPES if not kind.is_floating or kind.name == "f64"], ids=str)
def test_quantize_c1(dtype: object) -> None:
    refused("quantize_c1", f"{dtype}[2,64]", (_Q8_0,), f"the dtype is {dtype}")


@pytest.mark.parametrize("shape", ["[2,33]", "[]", "[3,0]"])
def test_quantize_c2(shape: str) -> None:
    refused("quantize_c2", f"f32{shape}", (_Q8_0,), "the shape is")


def test_quantize_c3() -> None:
    refused("quantize_c3", "f32[2,256]", (_Q6_K,), "the encoding is q6_k")


_ATTENTION = "i8[2,3,7,34] i8[2,3,7,68]"


@pytest.mark.parametrize(
    "caches", ["i8[2,3,7,33] i8[2,3,7,34]", "i8[2,3,7,34] i8[2,3,7,0]", "f32[2,3,7,34] i8[2,3,7,34]", "i8[] i8[34]"]
)
def test_packed_cached_attention_c1(caches: str) -> None:
    refused("packed_cached_attention_c1", f"f32[2,3,4,5,32] {caches} f32[1,5,7]", (0.5, _Q8_0), "k is .*, in q8_0")


@pytest.mark.parametrize("dtype", ["f64", "i8"])
def test_packed_cached_attention_c2(dtype: str) -> None:
    operands = f"{dtype}[2,3,4,5,32] {_ATTENTION} f32[1,5,7]"
    refused("packed_cached_attention_c2", operands, (0.5, _Q8_0), f"the dtype is {dtype}")


@pytest.mark.parametrize(
    "operands",
    [
        f"f32[2,3,4,5,64] {_ATTENTION} f32[1,5,7]",
        f"f32[2,1,4,5,32] {_ATTENTION} f32[1,5,7]",
        f"f32[1,3,4,5,32] {_ATTENTION} f32[1,5,7]",
        "f32[2,3,4,5,32] i8[2,3,7,34] i8[2,3,6,34] f32[1,5,7]",
        "f32[2,3,4,5,32] i8[0,3,7,34] i8[0,3,7,34] f32[1,5,7] i32[2]",
    ],
)
def test_packed_cached_attention_c3(operands: str) -> None:
    refused("packed_cached_attention_c3", operands, (0.5, _Q8_0), "q ")


def test_packed_cached_attention_c4() -> None:
    operands = f"f32[2,3,4,5,32] {_ATTENTION} f32[3,5,7]"
    refused("packed_cached_attention_c4", operands, (0.5, _Q8_0), r"the bias is f32\[3,5,7\]")


def test_packed_cached_attention_c5() -> None:
    operands = f"f32[2,3,4,5,32] {_ATTENTION} f32[1,5,7] i32[3]"
    refused("packed_cached_attention_c5", operands, (0.5, _Q8_0), r"rows are \[.*i32\[3\].*\] for q")


_BLOCKS = "i8[2,3,1,64] f32[2,3,2] i32[2,3,2]"
# Operands after x, of both ops, and the reason: x has 2 groups of 3 rows and 64 columns.
_EXPERT = pytest.mark.parametrize(
    ("operands", "reason"),
    [
        ("i32[3] i8[5,7,68]", r"expert is i32\[3\], and x has 2 groups"),
        ("i64[4] i8[5,7,68]", "expert is i64"),
        ("i32[2,2] i8[5,7,68]", "expert is i32"),
    ],
)
_WEIGHT = pytest.mark.parametrize(
    ("operands", "reason"),
    [
        ("i32[4] i8[7,68]", r"the weight is i8\[7,68\]$"),
        ("i32[4] u8[5,7,68]", "the weight is u8"),
        ("i32[4] i8[0,7,68]", "the weight is i8"),
        ("i32[4] i8[5,7,67]", r"the weight is i8\[5,7,67\]$"),
        ("i32[4] i8[5,7,34]", r"the weight is i8\[5,7,34\], 32 columns as q8_0$"),
    ],
)
_DTYPE = pytest.mark.parametrize("dtype", [kind for kind in DTYPES if not kind.is_floating], ids=str)


@pytest.mark.parametrize("x", ["f64[2,3,64]", "i8[2,3,64]", "f32[3,64]"])
def test_packed_expert_linear_c1(x: str) -> None:
    refused("packed_expert_linear_c1", f"{x} i32[4] i8[5,7,68]", (_Q8_0, f32, "exact"), r"x is (f64|i8|f32)\[")


@_EXPERT
def test_packed_expert_linear_c2(operands: str, reason: str) -> None:
    refused("packed_expert_linear_c2", f"f32[2,3,64] {operands}", (_Q8_0, f32, "exact"), reason)
    refused("packed_expert_linear_c2", "f32[0,3,64] i32[0] i8[5,7,68]", (_Q8_0, f32, "exact"), "expert is i32")


@_WEIGHT
def test_packed_expert_linear_c3(operands: str, reason: str) -> None:
    refused("packed_expert_linear_c3", f"f32[2,3,64] {operands}", (_Q8_0, f32, "exact"), reason)


@_DTYPE
def test_packed_expert_linear_c4(dtype: Any) -> None:
    attributes = (_Q8_0, dtype, "exact")
    refused("packed_expert_linear_c4", "f32[2,3,64] i32[4] i8[5,7,68]", attributes, f"the dtype is {dtype}")


def test_packed_expert_linear_c5() -> None:
    attributes = (_Q8_0, f32, "q4")
    refused("packed_expert_linear_c5", "f32[2,3,64] i32[4] i8[5,7,68]", attributes, "activations is 'q4'")


@pytest.mark.parametrize(
    "blocks",
    [
        "u8[2,3,1,64] f32[2,3,2] i32[2,3,2]",
        "i8[2,3,64] f32[2,2] i32[2,2]",
        "i8[2,3,3,64] f32[2,3,2] i32[2,3,2]",
        "i8[2,3,1,64] f32[2,3,1] i32[2,3,2]",
        "i8[2,3,1,64] f32[2,3,2] f32[2,3,2]",
    ],
)
def test_expert_block_product_c1(blocks: str) -> None:
    refused("expert_block_product_c1", f"{blocks} i32[4] i8[5,7,68]", (_Q8_0, f32), "planes is (i8|u8)")


@_EXPERT
def test_expert_block_product_c2(operands: str, reason: str) -> None:
    refused("expert_block_product_c2", f"{_BLOCKS} {operands}", (_Q8_0, f32), reason)


@_WEIGHT
def test_expert_block_product_c3(operands: str, reason: str) -> None:
    refused("expert_block_product_c3", f"{_BLOCKS} {operands}", (_Q8_0, f32), reason)


@_DTYPE
def test_expert_block_product_c4(dtype: Any) -> None:
    refused("expert_block_product_c4", f"{_BLOCKS} i32[4] i8[5,7,68]", (_Q8_0, dtype), f"the dtype is {dtype}")
