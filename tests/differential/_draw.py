"""Draws for strategies: dtypes, shapes, axes, and arrays with the values at which ops go wrong."""

import math
from typing import Any, Final

import numpy as np
from hypothesis import strategies as st

from lang_core import DTYPES, DType, bool_
from tests.differential._trial import Array, Draw, Serial

FLOATING: Final = tuple(t for t in DTYPES if t.is_floating)
INTEGERS: Final = tuple(t for t in DTYPES if t.is_integer)
NUMBERS: Final = FLOATING + INTEGERS
DOMAINS: Final = {
    "floating": FLOATING,
    "integer": INTEGERS,
    "number": NUMBERS,
    "signed": tuple(t for t in NUMBERS if t.name != "u8"),
    "bool": (bool_,),
    "any": DTYPES,
}
_FLOATS: Final = (0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, -2.5, 3.0, 0.1, -7.25, 20.0, np.inf, -np.inf, np.nan)


def generator(draw: Draw) -> np.random.Generator:
    """The source of a trial's values."""
    Serial.number += 1
    return np.random.default_rng([draw(st.integers(0, 2**32 - 1)), Serial.number])


def dtype_of(draw: Draw, domain: str) -> DType:
    """A dtype of a domain."""
    return draw(st.sampled_from(DOMAINS[domain]))


def shape_of(draw: Draw, rank: int | None = None, least: int = 0, most: int = 5) -> tuple[int, ...]:
    """A shape of rank 0 to 4, or of the given rank; dimensions from ``least`` to ``most``."""
    dims = st.sampled_from([*range(max(least, 1), most + 1)] * 2 + [0] * (least == 0))  # empty ones, but not often
    wanted = draw(st.integers(0, 4)) if rank is None else rank
    return tuple(draw(st.lists(dims, min_size=wanted, max_size=wanted)))


def axis_of(draw: Draw, rank: int) -> tuple[int, int]:
    """An axis, as a caller may write it (from the end, too) and counted from the start."""
    axis = draw(st.integers(0, rank - 1))
    return (axis - rank if draw(st.booleans()) else axis), axis


def axes_of(draw: Draw, rank: int) -> tuple[int, ...]:
    """Some of the axes, in order."""
    return tuple(axis for axis in range(rank) if draw(st.booleans()))


def specials(dtype: DType, subnormal: bool) -> Array:
    """Values at which rules go wrong."""
    if dtype is bool_:
        return np.array([False, True])
    if not dtype.is_floating:
        info = np.iinfo(dtype.numpy)
        near = (0, 1, 2, 3, 7, 100) if info.min == 0 else (0, 1, -1, 2, -3, 7, -100)
        return np.array((info.min, info.min + 1, *near, info.max - 1, info.max), dtype.numpy)
    tiny, largest = tiny_of(dtype), np.array(np.inf, dtype.numpy)
    largest = np.nextafter(largest, np.array(0, dtype.numpy))
    values = [np.array(_FLOATS).astype(dtype.numpy), np.array([tiny, -tiny], dtype.numpy), [largest, -largest]]
    if subnormal:
        values.append(np.array([tiny / 2, -tiny / 4], dtype.numpy))
    return np.concatenate(values).astype(dtype.numpy)


def tiny_of(dtype: DType) -> float:
    """The smallest normal number."""
    return {"f16": 2.0**-14, "bf16": 2.0**-126, "f32": 2.0**-126, "f64": 2.0**-1022}[dtype.name]


def wild(rng: np.random.Generator, shape: tuple[int, ...], dtype: DType, subnormal: bool | None = None) -> Array:
    """Special values, numbers of any size and small ones, mixed.

    Subnormal numbers are left out of f64 unless they are asked for: jax flushes them to 0.
    """
    subnormal = dtype.name != "f64" if subnormal is None else subnormal
    if dtype is bool_:
        return np.asarray(rng.integers(0, 2, shape) > 0)
    with np.errstate(all="ignore"):
        return _mixed(rng, shape, dtype, subnormal)


def _mixed(rng: np.random.Generator, shape: tuple[int, ...], dtype: DType, subnormal: bool) -> Array:
    pool = specials(dtype, subnormal)
    count = math.prod(shape)
    of_any_size = np.frombuffer(rng.bytes(count * dtype.itemsize), dtype.numpy).copy()
    if dtype.is_floating:  # one NaN is enough: which of them comes out of an operation is open
        wide = of_any_size.astype(np.float64)
        of_any_size[np.isnan(wide) | ((np.abs(wide) < tiny_of(dtype)) & (not subnormal))] = 1
    kind = rng.integers(0, 3, count)
    values = np.where(kind == 0, rng.choice(pool, count), np.where(kind == 1, of_any_size, tame(rng, (count,), dtype)))
    return _unusual(rng, values, dtype).astype(dtype.numpy).reshape(shape)


def _unusual(rng: np.random.Generator, values: Array, dtype: DType) -> Array:
    """Draws an array, as a rule with a NaN, an infinity and a zero in it."""
    if dtype.is_floating and values.size and rng.random() < 0.8:
        for value in (np.nan, rng.choice([np.inf, -np.inf]), rng.choice([0.0, -0.0])):
            values[rng.integers(values.size)] = value
    return values


def tame(rng: np.random.Generator, shape: tuple[int, ...], dtype: DType, unusual: bool = False) -> Array:
    """Small numbers with ties and zeros of both signs; with ``unusual``, rarely NaN and infinities too."""
    if dtype is bool_:
        return np.asarray(rng.integers(0, 2, shape) > 0)
    if not dtype.is_floating:
        return np.asarray(rng.integers(0 if dtype.name == "u8" else -9, 10, shape)).astype(dtype.numpy)
    values = np.where(rng.random(shape) < 0.5, rng.integers(-9, 10, shape) / 4, rng.normal(0, 3, shape))
    values = np.where((values == 0) & (rng.random(shape) < 0.5), -0.0, values)
    if unusual:
        odd = rng.choice(np.array([np.nan, np.inf, -np.inf]), shape)
        values = np.where(rng.random(shape) < 0.1, odd, values)
        values = _unusual(rng, np.array(values).reshape(-1), dtype).reshape(shape)
    return np.asarray(values).astype(dtype.numpy)


def numbers(draw: Draw, rng: np.random.Generator, shape: tuple[int, ...], dtype: DType) -> Array:
    """Operands of sums: integers of any size, floats whose sums do not overflow."""
    return tame(rng, shape, dtype, draw(st.booleans())) if dtype.is_floating else wild(rng, shape, dtype)


def indices(draw: Draw, rng: np.random.Generator, shape: tuple[int, ...], size: int) -> Array:
    """Positions in an axis of ``size``, some far outside."""
    dtype: Any = draw(st.sampled_from((np.int32, np.int64)))
    values = rng.integers(-3, size + 3, shape)
    extremes = np.array([np.iinfo(dtype).min, np.iinfo(dtype).max, -1, size])
    return np.asarray(np.where(rng.random(shape) < 0.15, rng.choice(extremes, shape), values)).astype(dtype)
