"""Emission of reductions."""

import math
from typing import Final

import numpy as np

from compile_dag import Node
from compile_hlo.emit._builder import Builder
from compile_hlo.emit._emitter import Emitter, emits
from compile_hlo.emit._overrides import overridable
from compile_hlo.emit._types import integers, tensor_type
from lang_core import DType, TensorSpec

# A product of so many factors does not overflow before a 0 comes.
_SAFE_FACTORS: Final = 2
_REDUCTIONS: Final = {"sum": "add", "prod": "multiply", "max": "maximum", "min": "minimum", "any": "or", "all": "and"}
# Beside the ops': the maximum of integers none of which is negative.
_COMBINED: Final = _REDUCTIONS | {"max_natural": "maximum"}


def lowest(dtype: DType) -> float:
    """Returns the value below all others, with which a maximum starts."""
    return -math.inf if dtype.is_floating else int(np.iinfo(dtype.numpy).min)


def highest(dtype: DType) -> float:
    """Returns the value above all others, with which a minimum starts."""
    return math.inf if dtype.is_floating else int(np.iinfo(dtype.numpy).max)


def _initial(op_name: str, dtype: DType) -> float:
    if op_name == "max":
        return lowest(dtype)
    if op_name == "min":
        return highest(dtype)
    return 1 if op_name in ("prod", "all") else 0


@emits(*_REDUCTIONS)
def _reduce(e: Emitter, node: Node) -> None:
    x, result = node.inputs[0].spec, node.results[0].spec
    axes, _ = node.attributes
    wide = TensorSpec(x.shape, x.dtype.accumulation)
    name = e.operand(node.inputs[0], x.shape, wide.dtype)
    if node.op.name == "prod" and wide.dtype.is_floating and math.prod(x.shape[axis] for axis in axes) > _SAFE_FACTORS:
        name = _factors(e, name, wide, axes)
    name = reduced(e, node.op.name, name, wide, axes)
    kept = kept_spec(wide, axes)
    name = e.convert(name, kept, result.dtype)
    e.alias(node, e.reshape(name, TensorSpec(kept.shape, result.dtype), result.shape))


def _factors(e: Builder, name: str, spec: TensorSpec, axes: tuple[int, ...]) -> str:
    """Returns the factors of a product, none beyond 1 if one is 0 and all are finite: the result is 0 in any order.

    The order of a reduction is unspecified, so a product that overflows before the 0 would give NaN.
    """
    kept = kept_spec(spec, axes)
    size = e.elementwise("abs", (name,), spec)
    least, most = (reduced(e, op, size, spec, axes) for op in ("min", "max"))
    has_zero = e.compare("EQ", least, e.filled(0, kept), kept)
    finite = e.compare("LT", most, e.filled(math.inf, kept), kept)
    flags, every = TensorSpec(kept.shape, "bool"), TensorSpec(spec.shape, "bool")
    vanishes = e.elementwise("and", (has_zero, finite), flags)
    vanishes = e.spread(vanishes, flags, every, tuple(axis for axis in range(spec.ndim) if axis not in axes))
    low, high = e.filled(-1, spec), e.filled(1, spec)
    inside = e.new(f"stablehlo.clamp {low}, {name}, {high} : {tensor_type(spec)}")
    return e.select(vanishes, inside, name, spec)


@overridable("reduce")
def reduced(e: Builder, op_name: str, operand: str, spec: TensorSpec, axes: tuple[int, ...]) -> str:
    """Reduces a value of a spec over axes, which go, by an op or by ``max_natural``."""
    initial = e.scalar(_initial(op_name, spec.dtype), spec.dtype)
    return e.new(
        f"stablehlo.reduce({operand} init: {initial}) applies stablehlo.{_COMBINED[op_name]} "
        f"across dimensions = {integers(axes)} : ({tensor_type(spec)}, {tensor_type(TensorSpec((), spec.dtype))}) "
        f"-> {tensor_type(kept_spec(spec, axes))}"
    )


def kept_spec(spec: TensorSpec, axes: tuple[int, ...]) -> TensorSpec:
    """Returns the spec of a value after a reduction over axes."""
    return TensorSpec(tuple(dim for axis, dim in enumerate(spec.shape) if axis not in axes), spec.dtype)
