"""Refusals of cached_attention, one per constraint."""

from lang_core.ops._refusals import refused

_GOOD = "f32[2,3,4,5,16] f32[2,3,7,16] f32[2,3,7,8]"


def test_cached_attention_c1() -> None:
    label = "cached_attention_c1"
    refused(label, "f32[2,3,4,16] f32[2,3,7,16] f32[2,3,7,8] f32[1,5,7]", (0.5,), "ranks 4, 4, 4")
    refused(label, "f32[2,3,4,5,16] f32[2,3,7,15] f32[2,3,7,8] f32[1,5,7]", (0.5,), r"q \(2, 3, 4, 5, 16\), k \(2, 3")
    refused(label, "f32[2,3,4,5,16] f32[2,3,7,16] f32[2,3,6,8] f32[1,5,7]", (0.5,), "q ")
    refused(label, "f32[2,3,4,5,16] f32[2,1,7,16] f32[2,1,7,8] f32[1,5,7]", (0.5,), "q ")
    refused(label, "f32[2,3,4,5,16] f32[2,3,0,16] f32[2,3,0,8] f32[1,5,0]", (0.5,), "q ")


def test_cached_attention_c2() -> None:
    label = "cached_attention_c2"
    refused(label, "f32[2,3,4,5,16] bf16[2,3,7,16] bf16[2,3,7,8] f32[1,5,7]", (0.5,), "dtypes f32, bf16, bf16")
    refused(label, "f64[2,3,4,5,16] f64[2,3,7,16] f64[2,3,7,8] f32[1,5,7]", (0.5,), "dtypes f64, f64, f64")


def test_cached_attention_c3() -> None:
    label = "cached_attention_c3"
    refused(label, f"{_GOOD} f32[3,5,7]", (0.5,), r"the bias is f32\[3,5,7\], q")
    refused(label, f"{_GOOD} f32[1,7,5]", (0.5,), "the bias is")
    refused(label, f"{_GOOD} f32[5,7]", (0.5,), "the bias is")
    refused(label, f"{_GOOD} bf16[1,5,7]", (0.5,), r"the bias is bf16\[1,5,7\]")
