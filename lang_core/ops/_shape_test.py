import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lang_core import DTYPES, OPS, DType, Literal, OpError, bool_, f32
from lang_core.ops._samples_testing import CTX, DRAWN, NUMBERS, OPS_NOW, SEEDS, SHAPES, assert_same, generator, values

ANY_DTYPE = st.sampled_from(DTYPES)


@given(shape=SHAPES, dtype=ANY_DTYPE, seed=SEEDS)
@DRAWN
def test_broadcast_repeats_as_numpys(shape: tuple[int, ...], dtype: DType, seed: int) -> None:
    rng = generator(seed)
    small = tuple(int(rng.choice([1, dim])) for dim in shape)[rng.integers(0, len(shape) + 1) :]
    x = values(rng, small, dtype)
    assert_same(OPS_NOW.broadcast(x, shape), np.broadcast_to(x, shape))


@given(shape=SHAPES, dtype=ANY_DTYPE, seed=SEEDS)
@DRAWN
def test_reshape_keeps_row_major_order(shape: tuple[int, ...], dtype: DType, seed: int) -> None:
    rng = generator(seed)
    x = values(rng, shape, dtype)
    turned = np.asarray(np.transpose(x))  # its memory is not in row-major order
    for array in (x, turned):
        target = tuple(int(dim) for dim in rng.permutation(shape))
        assert_same(OPS_NOW.reshape(array, target), np.reshape(array, target))
        assert_same(OPS_NOW.reshape(array, (-1,)), np.reshape(array, -1))
    with jax.enable_x64(True):
        assert_same(OPS_NOW.reshape(turned, (1, x.size)), np.asarray(jax.lax.reshape(jnp.asarray(turned), (1, x.size))))


def test_reshape_works_out_one_dimension() -> None:
    x = np.zeros((2, 6))
    assert OPS_NOW.reshape(x, (3, -1)).shape == (3, 4)
    assert OPS_NOW.reshape(np.zeros((0, 6)), (-1, 3)).shape == (0, 3)
    with pytest.raises(OpError, match=r"reshape_c1: 12 elements do not fill shape \(2, 5\)"):
        OPS_NOW.reshape(x, (-1, 5))


@given(shape=SHAPES, dtype=ANY_DTYPE, seed=SEEDS)
@DRAWN
def test_transpose_and_reverse(shape: tuple[int, ...], dtype: DType, seed: int) -> None:
    rng = generator(seed)
    x = values(rng, shape, dtype)
    axes = tuple(int(axis) for axis in rng.permutation(len(shape)))
    assert_same(OPS_NOW.transpose(x, axes), np.transpose(x, axes))
    assert_same(OPS_NOW.transpose(x, [axis - len(shape) for axis in axes]), np.transpose(x, axes))
    assert_same(OPS_NOW.transpose(x), x.T)
    some = axes[: rng.integers(0, len(shape) + 1)]
    assert_same(OPS_NOW.reverse(x, some), np.flip(x, some))


@given(shape=SHAPES, dtype=ANY_DTYPE, seed=SEEDS)
@DRAWN
def test_concat_undoes_split(shape: tuple[int, ...], dtype: DType, seed: int) -> None:
    rng = generator(seed)
    x = values(rng, (*shape, 7), dtype)
    sizes = [2, 0, 4, 1]
    pieces = OPS_NOW.split(x, sizes, -1)
    for piece, wanted in zip(pieces, np.split(x, np.cumsum(sizes)[:-1], axis=-1), strict=True):
        assert_same(piece, wanted)
    assert_same(OPS_NOW.concat(pieces, -1), x)
    assert_same(OPS_NOW.concat([x], 0), x)


@given(shape=SHAPES, dtype=ANY_DTYPE, seed=SEEDS)
@DRAWN
def test_slice_equals_pythons(shape: tuple[int, ...], dtype: DType, seed: int) -> None:
    rng = generator(seed)
    x = values(rng, shape, dtype)
    start = [int(rng.integers(0, dim + 1)) for dim in shape]
    stop = [int(rng.integers(begin, dim + 1)) for begin, dim in zip(start, shape, strict=True)]
    step = [int(number) for number in rng.integers(1, 4, len(shape))]
    assert_same(OPS_NOW.slice(x, start, stop, step), x[tuple(map(slice, start, stop, step))])
    assert_same(OPS_NOW.slice(x, start, stop), x[tuple(map(slice, start, stop))])
    if shape:
        assert_same(OPS_NOW.slice_axis(x, -1, start[-1], stop[-1]), x[..., start[-1] : stop[-1]])


@given(shape=st.lists(st.sampled_from((0, 1, 2, 3)), max_size=3).map(tuple), dtype=ANY_DTYPE, seed=SEEDS)
@DRAWN
def test_pad_puts_values_around_and_between(shape: tuple[int, ...], dtype: DType, seed: int) -> None:
    rng = generator(seed)
    x, value = values(rng, shape, dtype), values(rng, (), dtype)
    low, high, interior = ([int(number) for number in rng.integers(0, 3, len(shape))] for _ in range(3))
    wanted = np.full(
        [a + max(n + (n - 1) * i, 0) + b for a, b, i, n in zip(low, high, interior, shape, strict=True)], value
    )
    for place in np.ndindex(shape):
        wanted[tuple(a + p * (i + 1) for a, p, i in zip(low, place, interior, strict=True))] = x[place]
    assert_same(OPS_NOW.pad(x, low, high, value, interior), wanted)
    if shape and not any(interior):
        assert_same(
            OPS_NOW.pad(x, low, high, value), np.pad(x, list(zip(low, high, strict=True)), constant_values=value)
        )


@pytest.mark.parametrize("dtype", NUMBERS, ids=repr)
def test_pad_equals_jax(dtype: DType) -> None:
    x = values(generator(3), (3, 4), dtype)
    with jax.enable_x64(True):
        filler = jnp.asarray(np.array(5, dtype.numpy))
        wanted = np.asarray(jax.lax.pad(jnp.asarray(x), filler, ((1, 2, 1), (0, 3, 2))))
    assert_same(OPS_NOW.pad(x, (1, 0), (2, 3), 5, (1, 2)), wanted)


@pytest.mark.parametrize("dtype", DTYPES, ids=repr)
def test_pad_with_a_number_takes_the_tensors_dtype(dtype: DType) -> None:
    assert_same(OPS_NOW.pad(np.ones(2, dtype.numpy), (1,), (0,)), np.array([0, 1, 1], dtype.numpy))


@pytest.mark.parametrize("dtype", NUMBERS, ids=repr)
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_iota_counts_along_one_axis(dtype: DType, axis: int) -> None:
    with jax.enable_x64(True):
        wanted = np.asarray(jax.lax.broadcasted_iota(dtype.numpy, (3, 5), axis % 2))
    assert_same(OPS_NOW.iota((3, 5), axis, dtype), wanted)
    assert OPS_NOW.iota((0, 2)).shape == (0, 2)


@pytest.mark.parametrize("dtype", DTYPES, ids=repr)
def test_creators(dtype: DType) -> None:
    assert_same(OPS_NOW.zeros((2, 0), dtype), np.zeros((2, 0), dtype.numpy))
    assert_same(OPS_NOW.ones((), dtype), np.ones((), dtype.numpy))
    assert_same(OPS_NOW.full((2, 3), 1, dtype.name), np.full((2, 3), 1, dtype.numpy))


def _escaping(tensor: Any) -> bytes:
    return tensor.numpy().tobytes()


@pytest.mark.parametrize("dtype", DTYPES, ids=repr)
def test_constants_are_exact_copies(dtype: DType) -> None:
    bits = np.arange(2 if dtype is bool_ else 256, dtype=np.uint8)
    bits = bits if dtype.itemsize == 1 else np.repeat(bits, dtype.itemsize)
    array = bits.view(dtype.numpy).copy()
    before = array.tobytes()
    constant = OPS_NOW.constant(array)
    array[...] = 0
    assert _escaping(constant) == before


def test_constants_of_python_values() -> None:
    assert OPS_NOW.constant(1.5).dtype is f32
    assert_same(OPS_NOW.constant([[1, 2], [3, 4]]), np.array([[1, 2], [3, 4]], np.int32))
    assert_same(OPS_NOW.constant(True), np.array(True))
    assert_same(OPS_NOW.constant(2.0, "i8"), np.array(2, np.int8))
    assert_same(OPS_NOW.constant([], "i64"), np.zeros(0, np.int64))
    assert_same(
        OPS_NOW.constant(CTX.constant([1, 2]), "bf16"), np.array([1, 2]).astype(OPS_NOW.ones((), "bf16").numpy().dtype)
    )


@pytest.mark.parametrize(
    ("value", "dtype", "message"),
    [
        (1.5, "i32", "constant: 1.5 does not fit i32: a fraction is no integer"),
        ([[1], [2, 3]], None, r"constant: \[\[1\], \[2, 3\]\] does not fit an array"),
        (2**40, None, "constant: 1099511627776 does not fit i32"),
        (-1, "u8", "constant: -1 does not fit u8"),
        ("text", None, "unknown dtype '<U4'"),
        (np.zeros(2, np.int16), None, "unknown dtype 'int16': known are f16, bf16"),
        (1, "float32", "unknown dtype 'float32': known are f16, bf16"),
    ],
)  # fmt: skip
def test_constants_that_cannot_be(value: Any, dtype: str | None, message: str) -> None:
    with pytest.raises(OpError, match=message):
        OPS_NOW.constant(value, dtype)


def test_what_the_methods_themselves_refuse() -> None:
    x = np.zeros((2, 5))
    with pytest.raises(OpError, match=r"concat\(\) needs at least one tensor, found none"):
        OPS_NOW.concat([], 0)
    with pytest.raises(OpError, match=r"split of shape \(2, 5\), axis=1: sizes \(2, 2\) add up to 4"):
        OPS_NOW.split(x, (2, 2), -1)
    with pytest.raises(OpError, match=r"split of shape \(2, 5\), axis=2"):
        OPS_NOW.split(x, (5,), 2)
    with pytest.raises(OpError, match=r"slice_axis of shape \(2, 5\): there is no axis 2"):
        OPS_NOW.slice_axis(x, 2, 0, 1)
    with pytest.raises(OpError, match=r"dimensions are 0 or more, found shape \(-1, 2\)"):
        OPS_NOW.iota((-1, 2))


def test_moving_elements_leaves_the_operand_as_it_is() -> None:
    x = np.arange(math.prod((2, 3))).reshape(2, 3)
    before = x.copy()
    OPS_NOW.pad(x, (1, 0), (0, 0), 7)
    OPS_NOW.reverse(x, (0,))
    np.testing.assert_array_equal(x, before)


def test_rule_of_constant_gives_the_value() -> None:
    wanted = np.array([1.5, -2.0, np.nan, np.inf])
    (result,) = CTX.apply(OPS["constant"], (), (Literal(wanted.copy()),))
    np.testing.assert_array_equal(CTX.constant(result).numpy(), wanted)
