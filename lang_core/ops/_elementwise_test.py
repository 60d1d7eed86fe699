import itertools
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from scipy import special

from lang_core import DTYPES, OPS, DType, OpError, as_dtype, bf16, bool_, f16, f32, f64, i8, i32, u8
from lang_core.ops._samples_testing import (
    CTX,
    DRAWN,
    FLOATING,
    INTEGERS,
    NUMBERS,
    OPS_NOW,
    SEEDS,
    SHAPES,
    assert_close,
    assert_same,
    generator,
    special_values,
    values,
)

SIGNED = tuple(dtype for dtype in NUMBERS if dtype.name != "u8")
EXACT_BINARY: dict[str, tuple[Callable[..., Any], tuple[DType, ...]]] = {
    "add": (jax.lax.add, NUMBERS),
    "sub": (jax.lax.sub, NUMBERS),
    "mul": (jax.lax.mul, NUMBERS),
    "div": (jax.lax.div, FLOATING),
    "quotient": (jax.lax.div, INTEGERS),
    "rem": (jax.lax.rem, NUMBERS),
    "maximum": (jax.lax.max, NUMBERS),
    "minimum": (jax.lax.min, NUMBERS),
    "equal": (jax.lax.eq, DTYPES),
    "not_equal": (jax.lax.ne, DTYPES),
    "less": (jax.lax.lt, NUMBERS),
    "less_equal": (jax.lax.le, NUMBERS),
    "greater": (jax.lax.gt, NUMBERS),
    "greater_equal": (jax.lax.ge, NUMBERS),
    "logical_and": (jnp.logical_and, (bool_,)),
    "logical_or": (jnp.logical_or, (bool_,)),
    "logical_xor": (jnp.logical_xor, (bool_,)),
    "bitwise_and": (jax.lax.bitwise_and, INTEGERS),
    "bitwise_or": (jax.lax.bitwise_or, INTEGERS),
    "bitwise_xor": (jax.lax.bitwise_xor, INTEGERS),
    "shift_left": (jax.lax.shift_left, INTEGERS),
    "shift_right_logical": (jax.lax.shift_right_logical, INTEGERS),
}
EXACT_UNARY: dict[str, tuple[Callable[..., Any], tuple[DType, ...]]] = {
    "logical_not": (jnp.logical_not, (bool_,)),
    "negate": (jax.lax.neg, NUMBERS),
    "abs": (jax.lax.abs, SIGNED),
    "sign": (jax.lax.sign, SIGNED),
    "floor": (jax.lax.floor, FLOATING),
    "ceil": (jax.lax.ceil, FLOATING),
    "round": (lambda x: jax.lax.round(x, jax.lax.RoundingMethod.TO_NEAREST_EVEN), FLOATING),
}
# Functions that round: against jax at special values, against f64 NumPy at drawn ones.
FUNCTIONS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "exp": (jax.lax.exp, np.exp),
    "expm1": (jax.lax.expm1, np.expm1),
    "log": (jax.lax.log, np.log),
    "log1p": (jax.lax.log1p, np.log1p),
    "tanh": (jax.lax.tanh, np.tanh),
    "logistic": (jax.lax.logistic, special.expit),
    "erf": (jax.lax.erf, special.erf),
    "sqrt": (jax.lax.sqrt, np.sqrt),
    "rsqrt": (jax.lax.rsqrt, lambda x: 1 / np.sqrt(x)),
    "sin": (jax.lax.sin, np.sin),
    "cos": (jax.lax.cos, np.cos),
}


def _cases(table: dict[str, tuple[Callable[..., Any], tuple[DType, ...]]]) -> list[Any]:
    return [pytest.param(name, *row, id=name) for name, row in table.items()]


def _pairs(name: str, dtype: DType) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    x = y = special_values(dtype)
    if name.startswith("shift"):
        y = np.array([0, 1, 3, 8 * dtype.itemsize - 1], dtype.numpy)
    if name in ("quotient", "rem") and dtype.is_integer:
        y = y[y != 0]
    return x, y


@pytest.mark.parametrize(("name", "reference", "dtypes"), _cases(EXACT_BINARY))
def test_binary_ops_equal_jax_at_special_values(
    name: str, reference: Callable[..., Any], dtypes: tuple[DType, ...]
) -> None:
    for dtype in dtypes:
        x, y = _pairs(name, dtype)
        left, right = (np.ascontiguousarray(a) for a in np.broadcast_arrays(x[:, None], y))
        with jax.enable_x64(True):
            wanted = np.asarray(reference(jnp.asarray(left), jnp.asarray(right)))
        actual = getattr(OPS_NOW, name)(x[:, None], y)
        if name in ("maximum", "minimum"):  # of 0.0 and -0.0 either is right
            zero = np.zeros_like(wanted)
            wanted, actual = np.where(wanted == 0, zero, wanted), OPS_NOW.select(actual.numpy() == 0, zero, actual)
        assert_same(actual, wanted)


@pytest.mark.parametrize(("name", "reference", "dtypes"), _cases(EXACT_UNARY))
def test_unary_ops_equal_jax_at_special_values(
    name: str, reference: Callable[..., Any], dtypes: tuple[DType, ...]
) -> None:
    for dtype in dtypes:
        x = special_values(dtype)
        with jax.enable_x64(True):
            wanted = np.asarray(reference(jnp.asarray(x)))
        assert_same(getattr(OPS_NOW, name)(x), wanted)


@pytest.mark.parametrize("dtype", FLOATING, ids=repr)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_agree_with_jax_at_special_values(name: str, dtype: DType) -> None:
    x = special_values(dtype)
    with jax.enable_x64(True):
        wanted = np.asarray(FUNCTIONS[name][0](jnp.asarray(x)))
    assert_close(getattr(OPS_NOW, name)(x), wanted, ulps=8, scale=1e-6)


@pytest.mark.parametrize("dtype", FLOATING, ids=repr)
def test_pow_agrees_with_jax_at_special_values(dtype: DType) -> None:
    x = special_values(dtype)
    with jax.enable_x64(True):
        wanted = np.asarray(jax.lax.pow(jnp.asarray(np.repeat(x, x.size)), jnp.asarray(np.tile(x, x.size))))
    assert_close(OPS_NOW.pow(x[:, None], x), wanted.reshape(x.size, x.size), ulps=8)


@pytest.mark.parametrize("name", FUNCTIONS)
@given(shape=SHAPES, seed=SEEDS)
@DRAWN
def test_functions_round_as_f64_does(name: str, shape: tuple[int, ...], seed: int) -> None:
    exact = np.abs(values(generator(seed), shape, f64)) + 0.25
    for dtype in FLOATING:
        x = exact.astype(dtype.numpy)
        with np.errstate(over="ignore"):
            wanted = FUNCTIONS[name][1](x.astype(np.float64)).astype(dtype.numpy)
        # f16 and bf16 are rounded once from f32: off by at most the last unit.
        assert_close(getattr(OPS_NOW, name)(x), wanted, ulps=1 if dtype.itemsize == 2 else 4)


def test_erf_of_f64_is_the_c_librarys() -> None:
    x = np.linspace(-6.5, 6.5, 1001)
    assert_same(OPS_NOW.erf(x), [math.erf(number) for number in x])
    np.testing.assert_allclose(OPS_NOW.erf(x).numpy(), special.erf(x), rtol=1e-15)


def test_logistic_neither_overflows_nor_loses_small_values() -> None:
    actual = OPS_NOW.logistic(np.array([-700.0, -40.0, 0.0, 40.0, 700.0]))
    np.testing.assert_allclose(actual.numpy(), [np.exp(-700), np.exp(-40), 0.5, 1 / (1 + np.exp(-40)), 1], rtol=1e-14)


@pytest.mark.parametrize("dtype", FLOATING, ids=repr)
def test_subnormal_numbers_are_kept(dtype: DType) -> None:
    tiny = np.array(2.0 ** {"f16": -24, "bf16": -133, "f32": -149, "f64": -1074}[dtype.name]).astype(dtype.numpy)
    assert tiny != 0
    assert_same(OPS_NOW.add(tiny, tiny), tiny + tiny)
    assert_same(OPS_NOW.mul(tiny, 1.0), tiny)
    assert_same(OPS_NOW.abs(OPS_NOW.negate(tiny)), tiny)
    assert OPS_NOW.greater(tiny, 0.0).numpy()


@given(shape=SHAPES, seed=SEEDS)
@DRAWN
def test_shapes_broadcast_as_numpys(shape: tuple[int, ...], seed: int) -> None:
    rng = generator(seed)
    other = tuple(int(rng.choice([1, dim])) for dim in shape)[rng.integers(0, len(shape) + 1) :]
    x, y = values(rng, shape, i32), values(rng, other, i32)
    for a, b in ((x, y), (y, x)):
        actual = OPS_NOW.sub(a, b)
        assert actual.shape == np.broadcast_shapes(a.shape, b.shape)
        assert_same(actual, a - b)


@pytest.mark.parametrize(("x", "y"), list(itertools.product(DTYPES, DTYPES)), ids=repr)
def test_dtypes_promote_as_numpys(x: DType, y: DType) -> None:
    a, b = np.ones((2, 1), x.numpy), np.ones(3, y.numpy)
    try:
        common = np.result_type(x.numpy, y.numpy)
    except TypeError:
        common = np.dtype(object)
    if common not in [dtype.numpy for dtype in DTYPES]:
        with pytest.raises(OpError, match=f"equal_c2: {x} and {y} promote to no dtype of the table: cast one of them"):
            OPS_NOW.equal(a, b)
        return
    chosen = OPS_NOW.select(np.array([True, False, True]), a, b)
    assert (chosen.dtype, chosen.numpy().dtype) == (as_dtype(common), common)
    if common != np.bool_:
        assert_same(OPS_NOW.add(a, b), np.full((2, 3), 2, common))


@pytest.mark.parametrize("dtype", DTYPES, ids=repr)
@pytest.mark.parametrize("number", [True, 2, 0.5], ids=repr)
def test_python_numbers_are_weak_as_in_nep_50(dtype: DType, number: bool | int | float) -> None:
    if dtype is bool_ and number is True:
        assert_same(OPS_NOW.equal(np.ones(3, bool), number), [True] * 3)
        return
    ones = np.ones(3, dtype.numpy)
    # Deliberate: bf16 is a floating dtype like the others, where NumPy takes ml_dtypes' bf16 for something else.
    wanted = dtype.numpy if dtype is bf16 else np.result_type(dtype.numpy, number)
    assert_same(OPS_NOW.add(ones, number), (1 + np.full(3, number)).astype(wanted))
    assert_same(OPS_NOW.add(number, CTX.constant(ones)), (1 + np.full(3, number)).astype(wanted))


def test_a_python_number_that_does_not_fit_is_refused() -> None:
    with pytest.raises(OpError, match="300 does not fit u8"):
        OPS_NOW.add(np.ones(2, np.uint8), 300)
    with pytest.raises(
        OpError, match=r"maximum: at least one operand must be a tensor, found \(1, 2\): use ctx.ops.const"
    ):
        OPS_NOW.maximum(1, 2)


def test_numpy_scalars_are_data_and_not_weak() -> None:
    assert OPS_NOW.add(np.ones(2, np.float16), np.float32(2)).dtype is f32
    assert OPS_NOW.add(np.ones(2, np.float16), 2.0).dtype is f16


@pytest.mark.parametrize("dtype", NUMBERS, ids=repr)
def test_clamp_is_min_of_max_and_keeps_nan(dtype: DType) -> None:
    x = special_values(dtype)
    low, high = np.array(1, dtype.numpy), np.array(3, dtype.numpy)
    with jax.enable_x64(True):
        wanted = np.asarray(jax.lax.clamp(jnp.asarray(low), jnp.asarray(x), jnp.asarray(high)))
    assert_same(OPS_NOW.clamp(x, low, high), wanted)
    assert_same(OPS_NOW.clamp(x, 1, 3), wanted)
    # The bounds broadcast, and high wins where the bounds cross.
    assert_same(
        OPS_NOW.clamp(x[:, None], low, np.zeros(2, dtype.numpy)),
        np.where(np.isnan(x)[:, None], x[:, None], np.zeros((x.size, 2), dtype.numpy)).astype(dtype.numpy),
    )


def test_clamp_takes_numbers_in_any_place() -> None:
    assert_same(OPS_NOW.clamp(0.5, CTX.constant(np.array([1, 0], np.float16)), 2.0), np.array([1, 0.5], np.float16))


def test_select_broadcasts_its_predicate() -> None:
    pred = np.array([[True], [False]])
    x, y = np.arange(3, dtype=np.int8), np.array(-1, np.int32)
    assert_same(OPS_NOW.select(pred, x, y), np.array([[0, 1, 2], [-1, -1, -1]], np.int32))
    assert_same(OPS_NOW.select(True, x, 7), x)


@pytest.mark.parametrize(("source", "target"), list(itertools.product(DTYPES, DTYPES)), ids=repr)
def test_cast_equals_jax(source: DType, target: DType) -> None:
    x = special_values(source)
    if source.is_floating and target.is_integer:  # elsewhere the result is undefined
        exact = x.astype(np.float64)
        x = x[np.isfinite(exact) & (exact > (-1 if target is u8 else -128))]
    with jax.enable_x64(True):
        wanted = np.asarray(jax.lax.convert_element_type(jnp.asarray(x), target.numpy))
    assert_same(OPS_NOW.cast(x, target), wanted)


@pytest.mark.parametrize(("dtype", "bits"), [("f16", 10), ("bf16", 7), ("f32", 23)])
def test_cast_rounds_halves_to_even(dtype: str, bits: int) -> None:
    half = 2.0 ** -(bits + 1)
    x = np.array([1 + half, 1 + 3 * half, 1 + 1.25 * half, -1 - half])
    assert_same(OPS_NOW.cast(x, dtype), np.array([1, 1 + 4 * half, 1 + 2 * half, -1]).astype(as_dtype(dtype).numpy))


def test_cast_to_its_own_dtype_is_the_tensor_itself() -> None:
    x = CTX.constant([1.0])
    assert OPS_NOW.cast(x, "f32") is x


def test_every_elementwise_op_is_compared() -> None:
    compared = {*EXACT_BINARY, *EXACT_UNARY, *FUNCTIONS, "pow", "select", "clamp", "cast"}
    known = {name for name, op in OPS.items() if op.shape_rule.__module__ == "lang_core.ops._elementwise"}
    assert known == compared


def test_integers_wrap() -> None:
    assert_same(OPS_NOW.add(np.array(127, np.int8), 1), np.array(-128, np.int8))
    assert_same(OPS_NOW.negate(np.array(1, np.uint8)), np.array(255, np.uint8))
    assert_same(OPS_NOW.abs(np.array(-128, np.int8)), np.array(-128, np.int8))
    assert OPS_NOW.shift_right_logical(np.array(-1, np.int8), 1).numpy() == 127
    assert OPS_NOW.rem(np.array(-7, np.int8), 3).dtype is i8
