"""Probes: ops at special values, with results that nobody of this project computed.

The truth of a probe comes from NumPy in f64, from Python's ``math`` and integers, or is written out. A probe of f32,
f16 or bf16 is right if it is within its units in the last place of the truth rounded to its dtype.
"""

import dataclasses
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import numpy as np

from lang_core import DType, TensorSpec, as_dtype

Array = np.ndarray[Any, Any]

_EPS: Final = {"f16": 2.0**-10, "bf16": 2.0**-7, "f32": 2.0**-23, "f64": 2.0**-52}
_TINY: Final = {"f16": 2.0**-14, "bf16": 2.0**-126, "f32": 2.0**-126, "f64": 2.0**-1022}
FLOATS: Final = ("f32", "f64", "f16", "bf16")
INTEGERS: Final = ("i32", "i64", "i8", "u8")


@dataclasses.dataclass(frozen=True, slots=True)
class Probe:
    """Function of a context and tensors at special values, and its right results.

    Attributes:
        name: name of the op or composite, with what was special; unique in a dtype.
        dtype: dtype of the operands.
        fn: function of a context and one tensor per input.
        inputs: arrays.
        truth: right result per result of ``fn``.
        ulps: greatest distance from the truth, in units in the last place.
        either_zero: whether 0.0 and -0.0 are both right.
        size: number relative to which the distance counts as well.
        strict: whether subnormal results must not be flushed to 0.
    """

    name: str
    dtype: DType
    fn: Callable[..., Any]
    inputs: tuple[Array, ...]
    truth: tuple[Array, ...]
    ulps: float = 0.0
    either_zero: bool = False
    size: float = 0.0
    strict: bool = False

    @property
    def entry(self) -> str:
        """Name of the entry point."""
        return f"{self.name}_{self.dtype.name}"

    @property
    def specs(self) -> tuple[TensorSpec, ...]:
        """Specs of the inputs."""
        return tuple(TensorSpec(x.shape, as_dtype(x.dtype)) for x in self.inputs)

    @property
    def count(self) -> int:
        """Number of values that the probe checks."""
        return sum(x.size for x in self.truth)


def wrong(probe: Probe, results: Sequence[Array]) -> str | None:
    """Describes what is wrong with the results of a probe; None if nothing is."""
    if len(results) != len(probe.truth):
        return f"{len(results)} results, not {len(probe.truth)}"
    for result, truth in zip(results, probe.truth, strict=True):
        if result.shape != truth.shape or result.dtype != truth.dtype:
            return f"{result.dtype}{list(result.shape)}, not {truth.dtype}{list(truth.shape)}"
        bad = ~_right(probe, result, truth)
        if bad.any():
            at = tuple(int(i) for i in np.argwhere(bad)[0])
            return f"{int(bad.sum())} of {bad.size}; at {_place(probe, at)}: {result[at]!r}, not {truth[at]!r}"
    return None


def _place(probe: Probe, at: tuple[int, ...]) -> str:
    """Returns the operands of an element, of elementwise probes, or its place."""
    shapes = [x.shape for x in probe.inputs]
    try:
        same = np.broadcast_shapes(*shapes) == probe.truth[0].shape
    except ValueError:
        same = False
    if not same or not shapes:
        return str(at)
    return ", ".join(repr(np.broadcast_to(x, probe.truth[0].shape)[at].item()) for x in probe.inputs)


def _right(probe: Probe, result: Array, truth: Array) -> Array:
    dtype = as_dtype(truth.dtype)
    if not dtype.is_floating:
        return np.asarray(result.view(np.uint8) == truth.view(np.uint8) if truth.dtype == bool else result == truth)
    mine, right = result.astype(np.float64), truth.astype(np.float64)
    with np.errstate(all="ignore"):
        sign = probe.either_zero | (np.signbit(mine) == np.signbit(right))
        same = ((mine == right) & sign) | (np.isnan(mine) & np.isnan(right))
        tiny = _TINY[dtype.name]
        if not probe.strict:
            same |= (right != 0) & (np.abs(right) < tiny) & (np.abs(mine) <= tiny) & ((mine == 0) | sign)
        if not probe.ulps:
            return same
        step = probe.ulps * _EPS[dtype.name]
        near = np.abs(mine - right) <= step * (np.maximum(np.abs(right), _TINY[dtype.name]) + probe.size)
        largest = float(np.finfo(dtype.numpy).max) if dtype.name != "bf16" else 2.0**128 - 2.0**120
        edge = np.isinf(mine) & (np.abs(right) >= largest * (1 - step)) & np.isfinite(right) & sign
        return same | (near & np.isfinite(right)) | edge


def normal(x: Array) -> Array:
    """Returns the numbers that are no subnormals of their dtype."""
    wide = np.abs(x.astype(np.float64))
    return x[(wide == 0) | ~(wide < _TINY[as_dtype(x.dtype).name])]


_ORDINARY: Final = (
    0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.0, -2.0, 3.0, -3.0, 1.5, -1.5, 2.5, -2.5, 3.5, 0.1, -0.1, 0.7, -0.7, 4.0, -4.0,
    5.0, 7.0, 10.0, -10.0, 20.0, -20.0, 100.0, -100.0, 1e-3, -1e-3, 1e-4, 0.49999997, -0.49999997, 0.99999994,
    1.0000001, math.pi, -math.pi, math.pi / 2, math.e,
)  # fmt: skip
_FAR: Final = (
    1e4, -1e4, 1e5, -1e5, 1e6, 16777215.0, 16777216.0, 16777218.0, -16777216.0, 2147483648.0, -2147483648.0,
    4294967296.0, 9.2233720368547758e18, 1e10, -1e10, 1e15, -1e15, 1e19, -1e19, 1e30, -1e30, 1e38, -1e38,
    3.4028234663852886e38, -3.4028234663852886e38, 1e-6, -1e-6, 1e-10, -1e-10, 1e-20, -1e-20, 1e-30, -1e-30,
    1.1754943508222875e-38, -1.1754943508222875e-38, 88.0, 89.0, -87.0, -88.0, -103.0, -104.0, 5.5, -5.5, 6.0, -6.0,
    8.0, -8.0, 9.1, -9.1, 13.0, -13.0, 16.7, -16.7, 2049.0, 65504.0, -65504.0, 8388607.5, 8388609.0,
)  # fmt: skip
_ENDLESS: Final = (math.inf, -math.inf, math.nan)


def values(dtype: DType) -> Array:
    """Returns special values of a dtype, without subnormals."""
    if dtype.is_floating:
        more = (1e300, -1e300, 1e-300, 710.0, -746.0, 9007199254740993.0) if dtype.name == "f64" else ()
        with np.errstate(over="ignore"):
            every = np.array((*_ORDINARY, *_FAR, *more, *_ENDLESS)).astype(dtype.numpy)
        return normal(every)
    info = np.iinfo(dtype.numpy)
    near = [n for n in (0, 1, -1, 2, -2, 3, -3, 7, -7, 10, 16, 31, 63, 100, -100, 127) if info.min <= n <= info.max]
    far = (16777216, 16777217, -16777217, 2**30, 2**31, -(2**31), 2**32, 2**53 + 1, -(2**53) - 1, 2**62)
    edge = [info.min, info.min + 1, info.max - 1, info.max, info.max // 2, info.min // 2]
    return np.array([*near, *(n for n in far if info.min <= n <= info.max), *edge], dtype.numpy)


def few(dtype: DType) -> Array:
    """Returns some special values, of which pairs are taken."""
    if not dtype.is_floating:
        return values(dtype)
    some = (0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.0, -2.0, 3.0, -3.0, 2.5, -2.5, 0.1, 7.0, 10.0, 1e3, -1e4, 3e4, 1e-3)
    far = (1e19, -1e19, 1e30, 1e-20, -1e-30, 16777217.0, 3.4028234663852886e38, -3.4028234663852886e38, 1.2e-38)
    with np.errstate(over="ignore"):
        return normal(np.array((*some, *far, *_ENDLESS)).astype(dtype.numpy))


def rounded(x: Any, dtype: DType) -> Array:
    """Returns f64 numbers in a dtype; results of f64 stay."""
    with np.errstate(all="ignore"):
        wide = np.asarray(x, np.float64)
        if dtype.name == "bf16":
            return wide.astype(np.float32).astype(dtype.numpy)
        return wide.astype(dtype.numpy)


_erf: Final = np.vectorize(math.erf, otypes=[np.float64])
_erfc: Final = np.vectorize(math.erfc, otypes=[np.float64])


def _logistic(x: Array) -> Array:
    return np.where(x >= 0, 1 / (1 + np.exp(-np.abs(x))), np.exp(-np.abs(x)) / (1 + np.exp(-np.abs(x))))


def _power_of(x: float, y: float) -> float:
    """Returns C's pow, which Python's raises errors for."""
    try:
        return math.pow(x, y)
    except OverflowError:
        return math.copysign(math.inf, x) if y % 2 == 1 else math.inf
    except ValueError:
        if x == 0:  # y is negative
            return math.copysign(math.inf, x) if y % 2 == 1 else math.inf
        return math.nan


_power: Final = np.vectorize(_power_of, otypes=[np.float64])


def _sign(x: Array) -> Array:
    return np.where(x == 0, x, np.sign(x))


def _gelu(x: Array) -> Array:
    """x Phi(x); 0 of what rounds to no number, and -inf * 0 is NaN, as in PyTorch and JAX."""
    return x * np.where(x < 0, _erfc(-x / math.sqrt(2)) / 2, 1 - _erfc(x / math.sqrt(2)) / 2)


def _gelu_tanh(x: Array) -> Array:
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def _softplus(x: Array) -> Array:
    return np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))


# Ops without a probe: their values are those of an index, a shape or a bit.
OTHERS: Final = frozenset(
    "any all logical_and logical_or logical_xor logical_not broadcast reshape transpose concat slice pad reverse iota "
    "constant dynamic_slice dynamic_update_slice take gather scatter put while cond parameter conv dot_general "
    "block_quantize block_product packed_linear dequantize expert_block_product packed_expert_linear "
    "cached_attention packed_cached_attention quantize".split()
)

_UNARY: Final[dict[str, tuple[Callable[[Array], Any], float]]] = {
    "negate": (lambda x: -x, 0),
    "abs": (np.abs, 0),
    "sign": (_sign, 0),
    "exp": (np.exp, 8),
    "expm1": (np.expm1, 16),
    "log": (np.log, 8),
    "log1p": (np.log1p, 8),
    "tanh": (np.tanh, 16),
    "logistic": (_logistic, 8),
    "erf": (_erf, 8),
    "sqrt": (np.sqrt, 2),
    "rsqrt": (lambda x: 1 / np.sqrt(x), 4),
    "sin": (np.sin, 8),
    "cos": (np.cos, 8),
    "floor": (np.floor, 0),
    "ceil": (np.ceil, 0),
    "round": (np.rint, 0),
    "relu": (lambda x: np.maximum(x, 0), 0),
    "silu": (lambda x: x * _logistic(x), 16),
    "softplus": (_softplus, 16),
    "gelu": (_gelu, 16),
    "gelu_tanh": (_gelu_tanh, 16),
}
# Of what both zeros are right: who is the larger of two zeros is open.
_EITHER: Final = ("maximum", "minimum", "relu", "clamp", "max", "min")
# Distances count relative to these too: f32 cannot tell 1 + erf from 0 closer, and exp(-x) may be flushed to 0.
_BESIDE: Final = {"gelu": 1.0, "gelu_tanh": 1.0, "sin": 1.0, "cos": 1.0, "silu": 1e-30}

_BINARY: Final[dict[str, tuple[Callable[[Array, Array], Any], float]]] = {
    "add": (np.add, 0),
    "sub": (np.subtract, 0),
    "mul": (np.multiply, 0),
    "div": (np.divide, 2),
    "rem": (np.fmod, 0),
    "pow": (_power, 64),
    "maximum": (np.maximum, 0),
    "minimum": (np.minimum, 0),
    "equal": (np.equal, 0),
    "not_equal": (np.not_equal, 0),
    "less": (np.less, 0),
    "less_equal": (np.less_equal, 0),
    "greater": (np.greater, 0),
    "greater_equal": (np.greater_equal, 0),
}
_COMPARISONS: Final = ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal")
_NUMBERS: Final = {
    "add": (0.0, -0.0, 1.0),
    "sub": (0.0, -0.0, 1.0),
    "mul": (0.0, 1.0, -1.0, 2.0, -0.0),
    "div": (1.0, 2.0, -1.0, 0.0, 3.0),
    "pow": (0.0, 1.0, 2.0, 3.0, 0.5, -0.5, -1.0, -2.0, 1.5, 4.0),
    "maximum": (0.0, 1.0),
    "minimum": (0.0, 6.0),
    "rem": (1.0, 2.5),
}
# Number on the left.
_BEFORE: Final = {
    "sub": (0.0, -0.0, 1.0),
    "div": (1.0, 0.0),
    "pow": (2.0, 0.0, 1.0, -1.0),
    "add": (0.0,),
    "mul": (0.0,),
}


def _float_probes(dtype: DType) -> Iterator[Probe]:
    x = values(dtype)
    wide = x.astype(np.float64)
    for name, (truth, ulps) in _UNARY.items():
        keys, right = x, truth(wide)
        if name in ("sin", "cos"):  # beyond, a result is a matter of the reduction of its argument
            keys = x[~(np.abs(wide) > 1e4)]
            right = truth(keys.astype(np.float64))
        yield Probe(
            name, dtype, lambda c, x, name=name: getattr(c.ops, name)(x), (keys,), (rounded(right, dtype),),
            ulps, name in _EITHER, _BESIDE.get(name, 0.0),
        )  # fmt: skip
    y = few(dtype)
    left, right = y[:, None].astype(np.float64), y.astype(np.float64)
    for name, (truth, ulps) in _BINARY.items():
        wanted = np.asarray(truth(left, right))
        yield Probe(
            name, dtype, lambda c, x, y, name=name: getattr(c.ops, name)(x, y), (y[:, None].copy(), y),
            (wanted if name in _COMPARISONS else rounded(wanted, dtype),), ulps, name in _EITHER,
        )  # fmt: skip
    for name, numbers in _NUMBERS.items():
        yield _by_numbers(name, dtype, y, numbers, before=False)
    for name, numbers in _BEFORE.items():
        yield _by_numbers(name, dtype, y, numbers, before=True)


def _by_numbers(name: str, dtype: DType, x: Array, numbers: tuple[float, ...], before: bool) -> Probe:
    truth, ulps = _BINARY[name]
    wide = x.astype(np.float64)
    right = [truth(np.asarray(n), wide) if before else truth(wide, np.asarray(n)) for n in numbers]

    def fn(c: Any, x: Any) -> list[Any]:
        op = getattr(c.ops, name)
        return [op(n, x) if before else op(x, n) for n in numbers]

    results = tuple(rounded(r, dtype) for r in right)
    return Probe(f"{name}_{'of' if before else 'by'}_numbers", dtype, fn, (x,), results, ulps, name in _EITHER)


def _integer_probes(dtype: DType) -> Iterator[Probe]:
    x = values(dtype)
    bits = dtype.itemsize * 8
    every = [int(n) for n in x]

    def wrap(n: int) -> int:
        n %= 1 << bits
        return n - (1 << bits) if n >= 1 << (bits - 1) and np.iinfo(dtype.numpy).min < 0 else n

    def made(numbers: Any) -> Array:
        return np.array([wrap(n) for n in numbers], dtype.numpy)

    unary: dict[str, Callable[[int], int]] = {"negate": lambda n: -n, "relu": lambda n: max(n, 0)}
    if dtype.name != "u8":
        unary |= {"abs": abs, "sign": lambda n: (n > 0) - (n < 0)}
    for name, one in unary.items():
        yield Probe(name, dtype, lambda c, x, name=name: getattr(c.ops, name)(x), (x,), (made(map(one, every)),))
    binary: dict[str, Callable[[int, int], int]] = {
        "add": lambda a, b: a + b,
        "sub": lambda a, b: a - b,
        "mul": lambda a, b: a * b,
        "maximum": max,
        "minimum": min,
        "bitwise_and": lambda a, b: a & b,
        "bitwise_or": lambda a, b: a | b,
        "bitwise_xor": lambda a, b: a ^ b,
        "quotient": _towards_zero,
        "rem": lambda a, b: a - b * _towards_zero(a, b),
        "shift_left": lambda a, b: a << b,
        "shift_right_logical": lambda a, b: (a % (1 << bits)) >> b,
        "equal": lambda a, b: a == b,
        "not_equal": lambda a, b: a != b,
        "less": lambda a, b: a < b,
        "less_equal": lambda a, b: a <= b,
        "greater": lambda a, b: a > b,
        "greater_equal": lambda a, b: a >= b,
    }
    for name, two in binary.items():
        y = x
        if name in ("quotient", "rem"):  # by 0, and of the smallest integer by -1, there is no right result
            y = x[(x != 0) & (x != -1)] if dtype.name != "u8" else x[x != 0]
        elif name.startswith("shift"):
            y = np.array(sorted({0, 1, 7, bits // 2, bits - 1}), dtype.numpy)
        numbers = [two(a, int(b)) for a in every for b in y]
        right = np.array(numbers, bool) if name in _COMPARISONS else made(numbers)
        yield Probe(
            name, dtype, lambda c, x, y, name=name: getattr(c.ops, name)(x, y), (x[:, None].copy(), y),
            (right.reshape(x.size, y.size),),
        )  # fmt: skip
    scalars: dict[str, tuple[int, ...]] = {"add": (0, 1), "mul": (0, 1, 2, -1), "maximum": (0,), "minimum": (6,)}
    scalars |= {"quotient": (1, 2, 7), "rem": (1, 2, 7), "shift_left": (0, 1), "sub": (0, 1)}
    for name, given in scalars.items():
        given = tuple(n for n in given if n >= 0 or dtype.name != "u8")

        def fn(c: Any, x: Any, name: str = name, given: tuple[int, ...] = given) -> list[Any]:
            return [getattr(c.ops, name)(x, n) for n in given]

        truth = tuple(made(binary[name](a, n) for a in every) for n in given)
        yield Probe(f"{name}_by_numbers", dtype, fn, (x,), truth)


def _towards_zero(a: int, b: int) -> int:
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


# Rows that reductions, order and norms take.
_ROWS: Final = (
    (1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0),
    (0.0, -0.0, 0.0, -0.0, 0.0, -0.0, -0.0),
    (-0.0,) * 7,
    (math.inf, 1.0, 2.0, -1.0, 0.0, 3.0, 4.0),
    (-math.inf, 1.0, 2.0, -1.0, 0.0, 3.0, 4.0),
    (math.inf, -math.inf, 1.0, 2.0, 3.0, 4.0, 5.0),
    (math.nan, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0),
    (1.0, 2.0, 3.0, 4.0, 5.0, 6.0, math.nan),
    (1.0, math.nan, 3.0, math.nan, math.inf, -math.inf, 0.0),
    (-math.inf,) * 7,
    (math.inf,) * 7,
    (math.nan,) * 7,
    (3.0, 3.0, 1.0, 3.0, 1.0, 1.0, 3.0),
    (1e4, 1e4, 1e4, -1e4, -1e4, 1e4, 1e4),
    (0.0, 1e4, 1e4, 1e4, 1e4, 1e4, 1e4),
    (1e4, 1e4, 1e4, 1e4, 1e4, 1e4, 0.0),
    (-1.0, -2.0, -3.0, -3.0, -2.0, -1.0, -2.5),
    (60000.0, -60000.0, 60000.0, 1.0, 0.0, 0.0, 0.0),
    (1e-4, 1e-3, -1e-4, 1e-3, 0.0, 1e-4, 1e-4),
)
# Sums of squares of these have no f16, f32 or bf16.
_FAR_ROWS: Final = (
    (0.0, 1e30, 1e30, 1e30, 1e30, 1e30, 1e30),
    (1e30, 1e30, 0.0, 1e30, 1e30, 1e30, -1e30),
    (1e19, 1e19, -1e19, 0.0, 1.0, 2.0, 3.0),
    (3e38, 1.0, 2.0, -3e38, 0.0, 0.0, 0.0),
    (16777216.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0),
    (1e-30, 1e-30, 1e-30, 0.0, -1e-30, 1e-30, 1e-30),
)


def rows(dtype: DType) -> Array:
    """Returns rows of special values: [rows, 7]."""
    far = _FAR_ROWS if dtype.name != "f16" else ()
    return np.array((*_ROWS, *far)).astype(dtype.numpy)


def _softmax(x: Array) -> Array:
    shifted = np.exp(x - x.max(-1, keepdims=True))
    return shifted / shifted.sum(-1, keepdims=True)


def _log_softmax(x: Array) -> Array:
    shifted = x - x.max(-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))


def _product(row: Array) -> float:
    """Returns the exact product; a zero among finite numbers makes it 0."""
    return float(np.prod(row.astype(np.longdouble)))


def _row_probes(dtype: DType) -> Iterator[Probe]:
    x = rows(dtype)
    wide = x.astype(np.float64)
    sums: dict[str, tuple[Callable[[Array], Any], float, float]] = {
        "sum": (lambda x: x.sum(-1), 8, 0.0),
        "mean": (lambda x: x.mean(-1), 8, 0.0),
        "max": (lambda x: x.max(-1), 0, 0.0),
        "min": (lambda x: x.min(-1), 0, 0.0),
        "prod": (lambda x: np.array([_product(row) for row in x]), 16, 0.0),
        "softmax": (_softmax, 32, 0.0),
        "log_softmax": (_log_softmax, 32, 8.0),
    }
    for name, (truth, ulps, size) in sums.items():
        right = truth(wide)
        if name in ("sum", "mean"):
            size = 0.0
        fn = lambda c, x, name=name: getattr(c.ops, name)(x, -1)  # noqa: E731
        yield Probe(name, dtype, fn, (x,), (rounded(right, dtype),), ulps, name in _EITHER, size)
        if name in ("sum", "max", "min", "prod"):
            down = lambda c, x, name=name: getattr(c.ops, name)(x, 0)  # noqa: E731
            yield Probe(f"{name}_down", dtype, down, (x.T.copy(),), (rounded(right, dtype),), ulps, name in _EITHER)
    yield Probe("argmax", dtype, lambda c, x: c.ops.argmax(x, -1), (x,), (_arg(wide, np.argmax),))
    yield Probe("argmin", dtype, lambda c, x: c.ops.argmin(x, -1), (x,), (_arg(wide, np.argmin),))
    running = np.cumsum(wide, -1)
    size = 1.0
    yield Probe(
        "cumsum", dtype, lambda c, x: c.ops.cumsum(x, -1), (x[:-6],), (rounded(running[:-6], dtype),), 8, True, size
    )
    order = np.argsort(wide, -1, kind="stable")
    ordered = np.take_along_axis(x, order, -1), order.astype(np.int32)
    yield Probe("sort", dtype, lambda c, x: c.ops.sort(x, -1), (x,), ordered)
    ranked = np.argsort(-np.where(np.isnan(wide), np.inf, wide), -1, kind="stable")
    first = np.argsort(~np.isnan(np.take_along_axis(wide, ranked, -1)), -1, kind="stable")
    ranked = np.take_along_axis(ranked, first, -1)
    ordered = np.take_along_axis(x, ranked, -1), ranked.astype(np.int32)
    yield Probe("sort_descending", dtype, lambda c, x: c.ops.sort(x, -1, True), (x,), ordered)
    yield Probe("top_k", dtype, lambda c, x: c.ops.top_k(x, 3), (x,), tuple(y[:, :3].copy() for y in ordered))
    plain = x[:-6] if dtype.name != "f16" else x
    plain_wide = plain.astype(np.float64)
    eps = 1e-5
    centred = plain_wide - plain_wide.mean(-1, keepdims=True)
    norms = {
        "rms_norm": plain_wide / np.sqrt((plain_wide**2).mean(-1, keepdims=True) + 1e-6),
        "l2_norm": plain_wide / np.sqrt((plain_wide**2).sum(-1, keepdims=True) + 1e-6),
        "layer_norm": centred / np.sqrt((centred**2).mean(-1, keepdims=True) + eps),
    }
    for name, right in norms.items():
        yield Probe(
            name,
            dtype,
            lambda c, x, name=name: getattr(c.ops, name)(x),
            (plain,),
            (rounded(right, dtype),),
            64,
            True,
            1.0,
        )


def _arg(x: Array, function: Callable[..., Any]) -> Array:
    return np.asarray(function(x, -1)).astype(np.int32)


def _long_probes(dtype: DType) -> Iterator[Probe]:
    """Yields products and sums whose order matters."""
    if dtype.name not in ("f32", "f64"):
        return
    ladder = np.arange(200).astype(dtype.numpy)
    zeros = np.stack(
        [ladder, ladder[::-1], np.where(ladder == 77, -0.0, 1 - ladder), np.where(ladder == 3, np.nan, ladder)]
    )
    zeros = np.concatenate([zeros, np.where(ladder == 3, np.inf, ladder)[None]]).astype(dtype.numpy)
    negative = -1.0 if (np.signbit(zeros[2])).sum() % 2 else 1.0
    right = np.array([0.0, 0.0, np.copysign(0.0, negative), np.nan, np.nan])
    yield Probe("prod_of_200", dtype, lambda c, x: c.ops.prod(x, -1), (zeros,), (rounded(right, dtype),), 0, False)
    yield Probe("prod_of_200_down", dtype, lambda c, x: c.ops.prod(x, 0), (zeros.T.copy(),), (rounded(right, dtype),))


def _positive(c: Any, x: Any) -> list[Any]:
    above = c.ops.greater(x, 0.0)
    return [c.ops.select(above, x, 0.0), c.ops.select(above, c.ops.log(x), 0.0)]


def _choice_probes(dtype: DType) -> Iterator[Probe]:
    if dtype.is_floating:
        x = few(dtype)
        wide = x.astype(np.float64)
        bounds = ((-1.0, 1.0), (0.0, 6.0), (0.0, 0.0), (-math.inf, math.inf))
        right = tuple(rounded(np.minimum(np.maximum(wide, a), b), dtype) for a, b in bounds)
        yield Probe("clamp", dtype, lambda c, x: [c.ops.clamp(x, a, b) for a, b in bounds], (x,), right, 0, True)
        picked = np.where(wide > 0, x, np.asarray(0, dtype.numpy))
        logs = np.where(wide > 0, np.log(np.where(wide > 0, wide, 1)), 0.0)
        yield Probe("select", dtype, _positive, (x,), (picked, rounded(logs, dtype)), 8)
    for target in ("bool", "i32", "i64", "u8", "f32", "f64", "bf16", "f16", "i8"):
        if target == dtype.name:
            continue
        to = as_dtype(target)
        keys = values(dtype)
        wide = keys.astype(np.float64)
        if dtype.is_floating and to.is_integer:
            info = np.iinfo(to.numpy)
            keys = keys[np.isfinite(wide) & (np.trunc(wide) >= info.min) & (np.trunc(wide) < float(info.max))]
            right = np.array([int(v) for v in keys.astype(np.float64)], to.numpy)
        elif target == "bool":
            right = keys.astype(np.float64) != 0 if dtype.is_floating else keys != 0
        elif dtype.is_integer and to.is_integer:
            span = 1 << (8 * to.itemsize)
            low = int(np.iinfo(to.numpy).min)
            right = np.array([(int(v) - low) % span + low for v in keys], to.numpy)
        elif dtype.is_floating:
            with np.errstate(all="ignore"):
                right = rounded(wide, to)
        else:
            right = np.array([_nearest(int(v), target) for v in keys]).astype(to.numpy)
        yield Probe(f"cast_{target}", dtype, lambda c, x, target=target: c.ops.cast(x, target), (keys,), (right,))


def _nearest(number: int, target: str) -> Any:
    """Returns an integer in a floating dtype, rounded once; bf16 by way of f32."""
    if target == "f64":
        return float(number)
    if target == "f16":
        return np.float16(np.float64(number))
    return np.float32(number)


def _integer_row_probes(dtype: DType) -> Iterator[Probe]:
    x = np.array(
        [np.resize(values(dtype), 11), np.resize(values(dtype)[::-1], 11), np.roll(np.resize(values(dtype), 11), 5)]
    )
    bits = dtype.itemsize * 8
    low = int(np.iinfo(dtype.numpy).min)

    def made(numbers: Any) -> Array:
        return np.array([(n - low) % (1 << bits) + low for n in numbers], dtype.numpy)

    lines = [[int(n) for n in row] for row in x]
    truths = {"sum": made(map(sum, lines)), "prod": made(map(math.prod, lines))}
    truths |= {"max": made(map(max, lines)), "min": made(map(min, lines))}
    for name, right in truths.items():
        yield Probe(name, dtype, lambda c, x, name=name: getattr(c.ops, name)(x, -1), (x,), (right,))
        yield Probe(f"{name}_down", dtype, lambda c, x, name=name: getattr(c.ops, name)(x, 0), (x.T.copy(),), (right,))
    yield Probe("argmax", dtype, lambda c, x: c.ops.argmax(x, -1), (x,), (_arg(x, np.argmax),))
    yield Probe("argmin", dtype, lambda c, x: c.ops.argmin(x, -1), (x,), (_arg(x, np.argmin),))
    order = np.argsort(x, -1, kind="stable")
    yield Probe(
        "sort", dtype, lambda c, x: c.ops.sort(x, -1), (x,), (np.take_along_axis(x, order, -1), order.astype(np.int32))
    )
    running = np.array([made(sum(line[: i + 1]) for i in range(len(line))) for line in lines])
    yield Probe("cumsum", dtype, lambda c, x: c.ops.cumsum(x, -1), (x,), (running,))


def _subnormal_probes(dtype: DType) -> Iterator[Probe]:
    """Yields what subnormals go in or come out of."""
    if dtype.name not in ("f32", "f64"):
        return
    tiny = _TINY[dtype.name]
    x = np.array([tiny / 2, -tiny / 2, tiny / 4, tiny * 2, 1.0]).astype(dtype.numpy)
    wide = x.astype(np.float64) if dtype.name == "f32" else x
    ops: dict[str, Callable[[Any, Any], Any]] = {
        "add": lambda o, x: o.add(x, x),
        "mul": lambda o, x: o.mul(x, 0.5),
        "maximum": lambda o, x: o.maximum(x, 0.0),
        "greater": lambda o, x: o.cast(o.greater(x, 0.0), dtype),
        "abs": lambda o, x: o.abs(x),
    }
    right = {
        "add": wide + wide,
        "mul": wide * 0.5,
        "maximum": np.maximum(wide, 0),
        "greater": 1.0 * (wide > 0),
        "abs": np.abs(wide),
    }
    for name, fn in ops.items():
        yield Probe(
            f"{name}_subnormal",
            dtype,
            lambda c, x, fn=fn: fn(c.ops, x),
            (x,),
            (rounded(right[name], dtype),),
            0,
            True,
            0.0,
            True,
        )


def probes(name: str) -> list[Probe]:
    """Returns the probes of a dtype."""
    dtype = as_dtype(name)
    with np.errstate(all="ignore"):
        made = (
            [*_float_probes(dtype), *_row_probes(dtype), *_long_probes(dtype), *_subnormal_probes(dtype)]
            if dtype.is_floating
            else [*_integer_probes(dtype), *_integer_row_probes(dtype)]
        )
        return [*made, *_choice_probes(dtype)]
