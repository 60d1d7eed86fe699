"""Negative tests of elementwise ops, reductions and contractions: ``test_<op or family>_c<n>``."""

from typing import Any, Final

import pytest

from lang_core import OPS, DType, as_dtype
from lang_core.ops._refusals_testing import FAMILIES, refused

_OUTSIDE: Final = {"floating": "i32", "an integer": "f32", "a number": "bool", "signed": "u8", "bool": "i32"}
# The dtypes that each op takes, by the last of its constraints; equal and not_equal take them all.
_DOMAIN: Final = {
    name: domain
    for name in FAMILIES["elementwise"] + FAMILIES["unary"]
    if (domain := OPS[name].constraints[-1].rpartition("dtype is ")[2]) in _OUTSIDE
}


def _dtype_of(name: str) -> str:
    return {"bool": "bool", "an integer": "i32"}.get(_DOMAIN.get(name, ""), "f32")


@pytest.mark.parametrize("name", FAMILIES["elementwise"])
def test_elementwise_c1(name: str) -> None:
    dtype = _dtype_of(name)
    refused(f"{name}_c1", " ".join([f"{dtype}[2,3]", f"{dtype}[2]"] + [f"{dtype}[]"] * (name == "clamp")), (),
            r"shapes \(2, 3\) and \(2,\)( and \(\))? do not broadcast")  # fmt: skip


@pytest.mark.parametrize("name", FAMILIES["elementwise"])
def test_elementwise_c2(name: str) -> None:
    refused(f"{name}_c2", "i8[2] u8[2]" + " u8[]" * (name == "clamp"), (),
            "i8 and u8 promote to no dtype of the table: cast one of them")  # fmt: skip


@pytest.mark.parametrize("name", [name for name in FAMILIES["elementwise"] if name in _DOMAIN])
def test_elementwise_c3(name: str) -> None:
    outside = _OUTSIDE[_DOMAIN[name]]
    refused(f"{name}_c3", " ".join([f"{outside}[2]"] * (3 if name == "clamp" else 2)), (),
            f"the dtype is {outside}, not {_DOMAIN[name]}")  # fmt: skip


@pytest.mark.parametrize("name", FAMILIES["unary"])
def test_unary_c1(name: str) -> None:
    outside = _OUTSIDE[_DOMAIN[name]]
    refused(f"{name}_c1", f"{outside}[2]", (), f"the dtype is {outside}, not {_DOMAIN[name]}")


def test_select_c1() -> None:
    refused("select_c1", "bool[2] f32[3] f32[]", (), r"shapes \(2,\) and \(3,\) and \(\) do not broadcast")


def test_select_c2() -> None:
    refused("select_c2", "bool[] u8[3] i8[3]", (), "u8 and i8 promote to no dtype of the table")


def test_select_c3() -> None:
    refused("select_c3", "i32[] f32[3] f32[3]", (), "pred is i32, not bool")


def _reduced_dtype(name: str) -> str:
    return "bool" if name in ("any", "all") else "f32"


@pytest.mark.parametrize("name", FAMILIES["reduction"])
def test_reduction_c1(name: str) -> None:
    text = f"{_reduced_dtype(name)}[2,3]"
    refused(f"{name}_c1", text, ((-3,), False), "axis -3 is outside a tensor of 2 dimensions")
    refused(f"{name}_c1", text, ((0, 0), False), r"axes \(0, 0\) name one axis twice")


@pytest.mark.parametrize("name", FAMILIES["reduction"])
def test_reduction_c2(name: str) -> None:
    other = "f32" if _reduced_dtype(name) == "bool" else "bool"
    refused(f"{name}_c2", f"{other}[2,3]", ((0,), False), f"the dtype is {other}")


@pytest.mark.parametrize("name", ["max", "min"])
def test_reduction_c3(name: str) -> None:
    refused(f"{name}_c3", "f32[2,0]", ((1,), False), r"\(2, 0\) has no element along \(1,\)")


@pytest.mark.parametrize("name", FAMILIES["arg_reduction"])
def test_arg_reduction_c1(name: str) -> None:
    refused(f"{name}_c1", "f32[2,3]", (2, False), "axis 2 is outside a tensor of 2 dimensions")


@pytest.mark.parametrize("name", FAMILIES["arg_reduction"])
def test_arg_reduction_c2(name: str) -> None:
    refused(f"{name}_c2", "bool[2,3]", (1, False), "the dtype is bool")


@pytest.mark.parametrize("name", FAMILIES["arg_reduction"])
def test_arg_reduction_c3(name: str) -> None:
    refused(f"{name}_c3", "f32[2,0]", (1, False), r"\(2, 0\) has no element along axis 1")


@pytest.mark.parametrize("name", FAMILIES["along_axis"])
def test_along_axis_c1(name: str) -> None:
    refused(f"{name}_c1", "f32[2,3]", (-3, *[False] * (name == "sort")), "axis -3 is outside a tensor of 2 dimensions")


@pytest.mark.parametrize("name", FAMILIES["along_axis"])
def test_along_axis_c2(name: str) -> None:
    refused(f"{name}_c2", "bool[2,3]", (0, *[False] * (name == "sort")), "the dtype is bool")


def _dot(x_contract: Any, y_contract: Any, x_batch: Any = (), y_batch: Any = (), dtype: str = "f32") -> tuple[Any, ...]:
    wanted: DType = as_dtype(dtype)
    return x_contract, y_contract, x_batch, y_batch, wanted


def test_dot_general_c1() -> None:
    refused("dot_general_c1", "f32[2,3] f32[3,4]", _dot((2,), (0,)), "axis 2 is outside a tensor of 2 dimensions")
    refused("dot_general_c1", "f32[2,2] f32[2,2]", _dot((1,), (0,), (1,), (1,)), r"axes \(1, 1\) name one axis twice")


def test_dot_general_c2() -> None:
    refused(
        "dot_general_c2", "f32[2,3] f32[4,5]", _dot((1,), (0,)), r"contracted axes \(1,\) of \(2, 3\) and \(0,\) of"
    )
    refused("dot_general_c2", "f32[2,3] f32[3,4]", _dot((1,), ()), r"contracted axes \(1,\) of .* and \(\) of")
    refused("dot_general_c2", "f32[2,3] f32[4,3]", _dot((1,), (1,), (0,), (0,)), r"batch axes \(0,\) of \(2, 3\) and")


def test_dot_general_c3() -> None:
    refused("dot_general_c3", "f32[2,3] f16[3,4]", _dot((1,), (0,)), "dtypes f32 and f16 differ: cast one of them")


def test_dot_general_c4() -> None:
    refused("dot_general_c4", "bool[2,3] bool[3,4]", _dot((1,), (0,), dtype="bool"), "the dtype is bool")


@pytest.mark.parametrize(
    ("x", "result"), [("f32", "f16"), ("f16", "bf16"), ("i8", "u8"), ("i8", "f32"), ("f32", "i64"), ("i8", "bool")]
)
def test_dot_general_c5(x: str, result: str) -> None:
    refused(
        "dot_general_c5", f"{x}[2,3] {x}[3,4]", _dot((1,), (0,), dtype=result), f"{x} products cannot give {result}"
    )


def _geometry(strides: Any = (1,), padding: Any = ((0, 0),), dilation: Any = (1,), groups: int = 1) -> tuple[Any, ...]:
    return strides, padding, dilation, groups


def test_conv_c1() -> None:
    refused("conv_c1", "f32[2,3] f32[3,4]", ((), (), (), 1), r"x is f32\[2,3\], kernel f32\[3,4\]")
    refused("conv_c1", "f32[2,9,3] f32[3,4]", _geometry(), r"x is f32\[2,9,3\], kernel f32\[3,4\]")


def test_conv_c2() -> None:
    refused("conv_c2", "f32[2,9,3] f16[2,3,4]", _geometry(), "dtypes f32 and f16")
    refused("conv_c2", "i8[2,9,3] i8[2,3,4]", _geometry(), "dtypes i8 and i8")


def test_conv_c3() -> None:
    for kernel, groups in (("f32[2,5,4]", 1), ("f32[2,3,5]", 2), ("f32[2,6,4]", 0)):
        refused("conv_c3", f"f32[2,9,6] {kernel}", _geometry(groups=groups), f"6 channels, {groups} groups, kernel ")


@pytest.mark.parametrize(
    "geometry",
    [
        _geometry(strides=(0,)),
        _geometry(dilation=(0,)),
        _geometry(padding=((0, -1),)),
        _geometry(strides=(1, 1)),
        _geometry(padding=()),
        _geometry(dilation=()),
    ],
)
def test_conv_c4(geometry: tuple[Any, ...]) -> None:
    refused("conv_c4", "f32[2,9,6] f32[2,6,4]", geometry, r"\(.*\), \(.*\), \(.*\)")


_ATTENTION = "f32[2,3,4,5,16] f32[2,3,7,16] f32[2,3,7,8]"


def test_cached_attention_c1() -> None:
    label = "cached_attention_c1"
    refused(label, "f32[2,3,4,16] f32[2,3,7,16] f32[2,3,7,8] f32[1,5,7]", (0.5,), "ranks 4, 4, 4")
    refused(label, "f32[2,3,4,5,16] f32[2,3,7,15] f32[2,3,7,8] f32[1,5,7]", (0.5,), r"q \(2, 3, 4, 5, 16\), k \(2, 3")
    refused(label, "f32[2,3,4,5,16] f32[2,3,7,16] f32[2,3,6,8] f32[1,5,7]", (0.5,), "q ")
    refused(label, "f32[2,3,4,5,16] f32[2,1,7,16] f32[2,1,7,8] f32[1,5,7]", (0.5,), "q ")
    refused(label, "f32[2,3,4,5,16] f32[2,3,0,16] f32[2,3,0,8] f32[1,5,0]", (0.5,), "q ")
    refused(label, "f32[2,3,4,5,16] f32[9,3,7,16] f32[9,3,7,8] f32[1,5,7]", (0.5,), "q ")
    refused(label, "f32[2,3,4,5,16] f32[0,3,7,16] f32[0,3,7,8] f32[1,5,7] i32[2]", (0.5,), "q ")
    refused(label, "f32[2,3,4,5,16] f32[9,3,7,16] f32[8,3,7,8] f32[1,5,7] i32[2]", (0.5,), "q ")


def test_cached_attention_c2() -> None:
    label = "cached_attention_c2"
    refused(label, "f32[2,3,4,5,16] bf16[2,3,7,16] bf16[2,3,7,8] f32[1,5,7]", (0.5,), "dtypes f32, bf16, bf16")
    refused(label, "f64[2,3,4,5,16] f64[2,3,7,16] f64[2,3,7,8] f32[1,5,7]", (0.5,), "dtypes f64, f64, f64")


def test_cached_attention_c3() -> None:
    label = "cached_attention_c3"
    refused(label, f"{_ATTENTION} f32[3,5,7]", (0.5,), r"the bias is f32\[3,5,7\], q")
    refused(label, f"{_ATTENTION} f32[1,7,5]", (0.5,), "the bias is")
    refused(label, f"{_ATTENTION} f32[5,7]", (0.5,), "the bias is")
    refused(label, f"{_ATTENTION} f32[1,5,7] i32[2,3]", (0.5,), r"the bias is f32\[1,5,7\], q")
    refused(label, f"{_ATTENTION} bf16[1,5,7]", (0.5,), r"the bias is bf16\[1,5,7\]")


def test_cached_attention_c4() -> None:
    label = "cached_attention_c4"
    refused(label, f"{_ATTENTION} f32[1,5,7] i32[3]", (0.5,), r"rows are \[.*i32\[3\].*\] for q \(2, 3")
    refused(label, f"{_ATTENTION} f32[1,5,7] i64[2]", (0.5,), "rows are")
    refused(label, f"{_ATTENTION} f32[1,5,7] i32[2,1]", (0.5,), "rows are")
    refused(label, f"{_ATTENTION} f32[1,5,21] i32[3,3]", (0.5,), "rows are")
    refused(label, f"{_ATTENTION} f32[1,5,7] i32[2,3,1]", (0.5,), "rows are")
