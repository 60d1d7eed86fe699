"""Constants are exact: every bit comes back from the parser."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from compile_dag import record
from compile_hlo.emit import dense, tensor_type
from lang_core import DTYPES, DType, TensorSpec, as_dtype, bf16, bool_, f16, f32, f64
from tests.emission._support import interpret

_DRAWN = settings(deadline=None, derandomize=True, database=None, max_examples=80)
_SHAPES = st.lists(st.sampled_from((0, 1, 2, 3, 5)), max_size=3).map(tuple)


def _assert_exact(array: np.ndarray) -> None:
    """Asserts that an array comes back as a constant, through the parser and the interpreter (which prints nothing)."""
    graph = record(lambda c: c.ops.constant(array), name="f")
    result = interpret(graph, ())[0]
    assert (result.dtype, result.shape) == (array.dtype, array.shape)
    assert result.tobytes() == array.tobytes()


def _bits(dtype: DType) -> np.dtype:
    return np.dtype(f"u{dtype.itemsize}")


@pytest.mark.parametrize("dtype", [bf16, f16], ids=repr)
def test_every_16_bit_pattern(dtype: DType):
    _assert_exact(np.arange(65536, dtype=np.uint16).view(dtype.numpy).reshape(256, 256))


@pytest.mark.parametrize("dtype", [t for t in DTYPES if t.itemsize == 1], ids=repr)
def test_every_8_bit_pattern(dtype: DType):
    _assert_exact(np.arange(2 if dtype is bool_ else 256, dtype=np.uint8).view(dtype.numpy))


@pytest.mark.parametrize("dtype", [t for t in DTYPES if t is not bool_], ids=repr)
def test_random_bits(dtype: DType):
    bits = np.random.default_rng(3).integers(0, 2**63, (41, 3), np.uint64) * np.uint64(3)
    _assert_exact(bits.astype(_bits(dtype)).view(dtype.numpy))


@pytest.mark.parametrize(
    "number",
    [
        0.0,
        -0.0,
        1.0,
        -1.5,
        0.1,
        np.inf,
        -np.inf,
        np.nan,
        -np.nan,
        5e-324,
        1e-45,
        6e-8,
        1e-40,
        3.4e38,
        1e308,
        1e16,
        1e22,
    ],
)
@pytest.mark.parametrize("dtype", [f16, bf16, f32, f64], ids=repr)
def test_splats(number: float, dtype: DType):
    with np.errstate(over="ignore"):
        value = np.array(number).astype(dtype.numpy)
    for shape in ((), (1,), (2, 3)):
        _assert_exact(np.full(shape, value))


@pytest.mark.parametrize("dtype", [f16, bf16, f32, f64], ids=repr)
def test_payloads_of_nan(dtype: DType):
    size = 8 * dtype.itemsize
    quiet = int(np.array(np.nan).astype(dtype.numpy).view(_bits(dtype)))
    for payload in (1, 5):
        for sign in (0, 1 << (size - 1)):
            bits = np.array(quiet | payload | sign, _bits(dtype))
            _assert_exact(bits.view(dtype.numpy))
            _assert_exact(np.full((2, 2), bits).view(dtype.numpy))


@pytest.mark.parametrize("dtype", [t for t in DTYPES if t.is_integer], ids=repr)
def test_extreme_integers(dtype: DType):
    info = np.iinfo(dtype.numpy)
    for value in (info.min, info.max, 0):
        _assert_exact(np.full((2,), value, dtype.numpy))


@_DRAWN
@given(st.data(), _SHAPES, st.sampled_from(DTYPES))
def test_drawn_arrays(data: st.DataObject, shape: tuple[int, ...], dtype: DType):
    bits = data.draw(arrays.arrays(np.dtype(bool) if dtype is bool_ else _bits(dtype), shape))
    _assert_exact(bits.view(dtype.numpy))


def test_strided_arrays_are_read_in_order():
    _assert_exact(np.ascontiguousarray(np.arange(12, dtype=np.int32).reshape(3, 4).T))
    assert dense(np.arange(4, dtype=np.int8)[::-2]) == 'dense<"0x0301">'


def test_types_are_spelt_as_stablehlo_does():
    types = [tensor_type(TensorSpec((2, 3), dtype)) for dtype in DTYPES]
    wanted = "f16 bf16 f32 f64 i8 ui8 i32 i64 i1".split()
    assert types == [f"tensor<2x3x{name}>" for name in wanted]
    assert tensor_type(TensorSpec((), as_dtype("u8"))) == "tensor<ui8>"
