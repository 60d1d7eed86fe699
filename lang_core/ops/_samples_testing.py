"""Support for the ops' tests: values worth trying, drawn shapes, and comparison. Only tests import this."""

import os
from typing import Any, Final

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st

from lang_core import DTYPES, DType, EagerExecutionContext, Tensor, bool_

CTX: Final = EagerExecutionContext()
# Of any type, since tests hand NumPy arrays to methods that are annotated for tensors.
OPS_NOW: Final[Any] = CTX.ops

# A busy machine must not fail a property test, and the same commit must always draw the same examples.
# With TAPELINE_LONG=1 in the environment twice as many.
DRAWN: Final = settings(
    deadline=None, derandomize=True, max_examples=60 if os.environ.get("TAPELINE_LONG") else 30, database=None
)

FLOATING: Final = tuple(dtype for dtype in DTYPES if dtype.is_floating)
INTEGERS: Final = tuple(dtype for dtype in DTYPES if dtype.is_integer)
NUMBERS: Final = FLOATING + INTEGERS
SHAPES: Final = st.lists(st.sampled_from((0, 1, 2, 3, 5)), max_size=4).map(tuple)

# One unit in the last place of a number near 1; integers have none.
ULP: Final = {"f16": 2.0**-10, "bf16": 2.0**-7, "f32": 2.0**-23, "f64": 2.0**-52}

_FLOATS: Final = (0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 3.0, 1.5, 100.0, -7.25, 0.1, np.inf, -np.inf, np.nan)


def special_values(dtype: DType) -> np.ndarray[Any, Any]:
    """Returns the values of a dtype at which functions go wrong, without subnormal numbers."""
    if dtype is bool_:
        return np.array([False, True])
    if dtype.is_floating:
        return np.array(_FLOATS).astype(dtype.numpy)
    low, high = np.iinfo(dtype.numpy).min, np.iinfo(dtype.numpy).max
    near = [0, 1, 2, 3, 7, 100] if low == 0 else [0, 1, -1, 2, -3, 7, -100]
    return np.array([low, low + 1, *near, high - 1, high], dtype.numpy)


def values(rng: np.random.Generator, shape: tuple[int, ...], dtype: DType, special: bool = False) -> Any:
    """Draws values: small numbers with ties, or with ``special`` the special ones mixed in."""
    if special:
        return rng.choice(special_values(dtype), shape).reshape(shape)
    if dtype is bool_:
        return np.asarray(rng.integers(0, 2, shape) > 0)
    low = 0 if dtype.name == "u8" else -9
    drawn = np.asarray(rng.integers(low, 10, shape))
    return np.asarray((drawn / 4 if dtype.is_floating else drawn).astype(dtype.numpy))


def generator(seed: int) -> np.random.Generator:
    """Returns the generator of one drawn example."""
    return np.random.default_rng(seed)


SEEDS: Final = st.integers(0, 2**32 - 1)


def assert_same(actual: Tensor, wanted: Any) -> None:
    """Checks for the same dtype, shape and values, NaN being equal to NaN and 0.0 not to -0.0."""
    data, wanted = actual.numpy(), np.asarray(wanted)
    assert (data.dtype, data.shape) == (wanted.dtype, wanted.shape)
    np.testing.assert_array_equal(_plain(data), _plain(wanted))
    if data.dtype.kind in "fV":
        finite = ~np.isnan(_plain(data))
        np.testing.assert_array_equal(np.signbit(_plain(data))[finite], np.signbit(_plain(wanted))[finite])


def assert_close(actual: Tensor, wanted: Any, ulps: float = 4, scale: float = 1.0) -> None:
    """Checks for the same dtype and shape, and values within so many units in the last place, or of ``scale``'s."""
    data, wanted = actual.numpy(), np.asarray(wanted)
    assert (data.dtype, data.shape) == (wanted.dtype, wanted.shape)
    step = ulps * ULP.get(actual.dtype.name, 0.0)
    np.testing.assert_allclose(_plain(data), _plain(wanted), rtol=step, atol=step * scale)


def _plain(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return array.astype(np.float64) if array.dtype.kind in "fV" else array
