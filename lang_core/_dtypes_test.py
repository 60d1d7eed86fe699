import copy
import itertools
import pickle

import ml_dtypes
import numpy as np
import pytest

from lang_core import DTYPES, DType, OpError, TensorSpec, as_dtype, bf16, bool_, f32, i8, i32, i64, promote, u8


def test_names_sizes_and_kinds() -> None:
    assert [(d.name, d.itemsize) for d in DTYPES] == [
        ("f16", 2), ("bf16", 2), ("f32", 4), ("f64", 8), ("i8", 1), ("u8", 1), ("i32", 4), ("i64", 8), ("bool", 1),
    ]  # fmt: skip
    for dtype in DTYPES:
        assert dtype.itemsize == dtype.numpy.itemsize
        assert dtype.is_floating == dtype.name.lstrip("b").startswith("f")
        assert dtype.is_integer == dtype.name.startswith(("i", "u"))
        assert repr(dtype) == dtype.name
    assert bf16.numpy == np.dtype(ml_dtypes.bfloat16)


@pytest.mark.parametrize("dtype", DTYPES, ids=repr)
def test_there_is_one_object_per_dtype(dtype: DType) -> None:
    assert as_dtype(dtype) is as_dtype(dtype.name) is as_dtype(dtype.numpy) is dtype
    assert pickle.loads(pickle.dumps(dtype)) is dtype  # noqa: S301
    assert copy.deepcopy(dtype) is dtype


@pytest.mark.parametrize("value", ["fp16", "bfloat16", np.dtype("uint16"), np.dtype(">f4"), np.dtype(object)], ids=str)
def test_unknown_dtypes_are_refused(value: str) -> None:
    with pytest.raises(OpError, match=r"unknown dtype '.*': known are f16, bf16, f32, f64, i8, u8, i32, i64, bool"):
        as_dtype(value)


def test_a_near_name_is_suggested() -> None:
    with pytest.raises(OpError, match=r"unknown dtype 'b16': .*did you mean 'bf16' or 'f16'\?"):
        as_dtype("b16")


@pytest.mark.parametrize(("a", "b"), list(itertools.product(DTYPES, DTYPES)), ids=repr)
def test_promotion_is_numpys(a: DType, b: DType) -> None:
    try:
        wanted = np.result_type(a.numpy, b.numpy)
    except TypeError:
        wanted = np.dtype(object)
    promoted = promote(a, b)
    assert promoted is promote(b, a)
    if promoted is None:
        assert wanted not in [dtype.numpy for dtype in DTYPES]
    else:
        assert promoted.numpy == wanted


def test_promotions_worth_knowing() -> None:
    assert promote(i32, f32) is as_dtype("f64")
    assert promote(i8, u8) is None  # int16 is not in the table
    assert promote(bf16, as_dtype("f16")) is promote(bf16, i32) is None  # NumPy knows no common dtype
    assert promote(bf16, u8) is bf16
    assert promote(u8, i32) is i32
    assert promote(bool_, u8) is u8


def test_specs_know_their_sizes() -> None:
    spec = TensorSpec((2, 3), "bf16")
    assert (spec.ndim, spec.size, spec.nbytes, repr(spec)) == (2, 6, 12, "bf16[2,3]")
    assert spec == TensorSpec([2, np.int64(3)], bf16)  # pyright: ignore[reportArgumentType]
    assert hash(spec) == hash(TensorSpec((2, 3), bf16))
    assert spec != TensorSpec((3, 2), bf16)
    assert TensorSpec((), i64).size == 1
    assert TensorSpec((0, 5), i64).nbytes == 0


def test_a_spec_refuses_negative_dimensions_and_unknown_dtypes() -> None:
    with pytest.raises(OpError, match=r"a tensor's dimensions are 0 or more, found shape \(2, -1\)"):
        TensorSpec((2, -1), f32)
    with pytest.raises(OpError, match="unknown dtype 'f8'"):
        TensorSpec((2,), "f8")


def test_halves_are_computed_in_f32_and_all_else_in_its_own_dtype() -> None:
    assert [dtype.accumulation.name for dtype in DTYPES] == [
        "f32",
        "f32",
        "f32",
        "f64",
        "i8",
        "u8",
        "i32",
        "i64",
        "bool",
    ]
