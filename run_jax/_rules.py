"""Rules of ops on JAX's arrays: their table, and the dtypes in which they compute."""

from collections.abc import Callable
from typing import Any, Final

import numpy as np
from jax import lax

from lang_core import DType, GraphError, as_dtype, bf16, promote

# ``(*arrays, *attributes) -> array or tuple of arrays``, as the op's eager rule.
Rule = Callable[..., Any]
Array = Any

RULES: Final[dict[str, Rule]] = {}
"""Rule of each op on JAX's arrays, by its name."""
_BF16_BITS: Final = 8, 7  # of exponent and mantissa


def computes(*names: str) -> Callable[[Rule], Rule]:
    """Registers the rule of ops, ``rule(*arrays, *attributes)``: arrays of JAX in, an array or a tuple of them out."""

    def register(rule: Rule) -> Rule:
        for name in names:
            if name in RULES:
                raise GraphError(f"the op {name!r} has a rule in run_jax already: register one for each")
            RULES[name] = rule
        return rule

    return register


def convert(x: Array, dtype: DType) -> Array:
    """Returns x in a dtype of the table, rounded to nearest even; bf16 by way of f32.

    The rounding to bf16 is an op of its own, because XLA may drop a conversion that is undone by the next one.
    """
    if dtype is bf16 and x.dtype != bf16.numpy:
        x = lax.reduce_precision(lax.convert_element_type(x, np.float32), *_BF16_BITS)
    return lax.convert_element_type(x, dtype.numpy)


def common_dtype(arrays: tuple[Array, ...]) -> DType:
    """Returns the dtype to which operands promote; the op's contract has checked that there is one."""
    common = as_dtype(arrays[0].dtype)
    for array in arrays[1:]:
        common = promote(common, as_dtype(array.dtype)) or common
    return common


def aligned(arrays: tuple[Array, ...], dtype: DType) -> list[Array]:
    """Returns the operands broadcast to their common shape, in a dtype."""
    shape = np.broadcast_shapes(*(tuple(array.shape) for array in arrays))
    return [broadcast(convert(array, dtype), shape) for array in arrays]


def broadcast(x: Array, shape: tuple[int, ...]) -> Array:
    """Returns x repeated to a shape, aligned at the right."""
    if tuple(x.shape) == shape:
        return x
    lead = len(shape) - x.ndim
    kept = [axis for axis in range(x.ndim) if x.shape[axis] == shape[lead + axis]]
    squeezed = lax.reshape(x, tuple(x.shape[axis] for axis in kept)) if len(kept) < x.ndim else x
    return lax.broadcast_in_dim(squeezed, shape, tuple(lead + axis for axis in kept))
