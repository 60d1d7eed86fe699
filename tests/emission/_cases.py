"""Case of an op, and the data of its operands: what the interpreter and every device run against the eager context."""

import dataclasses
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from lang_core import DType, TensorSpec, as_dtype, bool_

Array = np.ndarray[Any, Any]
_RNG_SEED: Final = 20

# Exact: everything but these, where two right implementations differ by rounding.
_ULPS: Final = {
    "exp": 8,
    "expm1": 16,
    "log": 8,
    "log1p": 8,
    "tanh": 16,
    "logistic": 8,
    "erf": 8,
    "rsqrt": 4,
    "sqrt": 2,
    "sin": 8,
    "cos": 8,
    "pow": 64,
    "div": 2,
    "sum": 8,
    "prod": 8,
    "cumsum": 8,
    "dot_general": 8,
    "conv": 8,
}
_FLOATS: Final = (0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 3.0, 1.5, 0.1, -7.25, 20.0, np.inf, -np.inf, np.nan)


@dataclasses.dataclass(frozen=True, slots=True)
class Case:
    """A function of a context and tensors, with inputs.

    Attributes:
        op: name of the op that it shows.
        name: identifier, unique among all cases.
        dtype: dtype of the operands.
        fn: function of a context and one tensor per input that returns a tensor or several.
        inputs: arrays.
        ulps: greatest distance of a result from the eager one, in units in the last place; 0 is bit for bit, but for
            the payload of NaN.
    """

    op: str
    name: str
    dtype: DType
    fn: Callable[..., Any]
    inputs: tuple[Array, ...]
    ulps: float = 0.0

    @property
    def specs(self) -> tuple[TensorSpec, ...]:
        """Specs of the inputs."""
        return tuple(TensorSpec(x.shape, as_dtype(x.dtype)) for x in self.inputs)


def special(dtype: DType) -> Array:
    """Returns values at which rules go wrong."""
    if dtype is bool_:
        return np.array([False, True, True])
    if dtype.is_floating:
        return np.array(_FLOATS).astype(dtype.numpy)
    info = np.iinfo(dtype.numpy)
    near = (0, 1, 2, 3, 7, 100) if info.min == 0 else (0, 1, -1, 2, -3, 7, -100)
    return np.array((info.min, info.min + 1, *near, info.max - 1, info.max), dtype.numpy)


def filled(dtype: DType, *shape: int) -> Array:
    """Returns the special values again and again, in a shape."""
    return np.resize(special(dtype), shape)


def small(dtype: DType, *shape: int) -> Array:
    """Returns small numbers with ties, the same ones on every call."""
    rng = np.random.default_rng(_RNG_SEED)
    numbers = rng.integers(0 if dtype.name in ("u8", "bool") else -9, 2 if dtype is bool_ else 10, shape)
    return np.asarray(numbers / 4 if dtype.is_floating else numbers).astype(dtype.numpy)


def ulps_of(case: Case) -> float:
    """Returns how far a right implementation may be from the eager one, in units in the last place."""
    return _ULPS.get(case.op, 0.0) if case.dtype.is_floating else 0.0
