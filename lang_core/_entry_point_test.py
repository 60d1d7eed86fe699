"""Arguments of entry points: what cannot be is refused when they are made."""

import pytest

from lang_core import Argument, RecordingError, TensorSpec


def test_bounds_are_of_an_integer_and_in_order() -> None:
    assert Argument("position", TensorSpec((3,), "i32"), bounds=(0, 7)).bounds == (0, 7)
    assert Argument("last", TensorSpec((), "i32"), "scalar", bounds=(2, 2)).bounds == (2, 2)
    for spec, bounds in ((TensorSpec((3,), "i32"), (1, 0)), (TensorSpec((), "f32"), (0, 1))):
        with pytest.raises(
            RecordingError, match=r"argument 'x': bounds are two integers, the lesser first, .*; found \("
        ):
            Argument("x", spec, bounds=bounds)


def test_a_scalar_has_no_dimension() -> None:
    with pytest.raises(RecordingError, match=r"argument 'x': a scalar has rank 0, found i32\[1\]"):
        Argument("x", TensorSpec((1,), "i32"), "scalar")


def test_axes_are_one_per_dimension() -> None:
    assert Argument("x", TensorSpec((3, 4), "f32"), axes=("dp", None)).axes == ("dp", None)
    with pytest.raises(
        RecordingError, match=r"argument 'x': expected an axis or None per dimension of f32\[3,4\], found"
    ):
        Argument("x", TensorSpec((3, 4), "f32"), axes=("dp",))


def test_only_a_tensor_that_is_kept_is_copied() -> None:
    with pytest.raises(RecordingError, match="only a tensor that is kept can be copied, and it is a scalar"):
        Argument("x", TensorSpec((), "i32"), "scalar", copied=True)
    with pytest.raises(RecordingError, match="only a tensor that is kept can be copied, and it is donated"):
        Argument("x", TensorSpec((2,), "i32"), alias_result="y", copied=True)
