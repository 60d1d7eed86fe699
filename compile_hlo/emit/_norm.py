"""Emission of norms and gates between products, with the quantizing after them, as helper functions."""

from typing import Final

import numpy as np

from compile_hlo.emit._builder import Builder, SsaValue
from compile_hlo.emit._calls import call_helper, flat, in_name
from compile_hlo.emit._emitter import Emitter, emits_composite
from compile_hlo.emit._helpers import Helper
from compile_hlo.emit._packed import bind_blocks, bits_in_name, bits_of, block_specs, quantized
from compile_hlo.emit._reduce import reduced
from compile_hlo.passes import Group
from lang_core import TensorSpec, bf16, f16, f32

_DTYPES: Final = (f32, bf16, f16)


def _is_norm(group: Group) -> bool:
    x, *weights = group.inputs
    fitting = [weight.shape == x.shape[-1:] and weight.dtype in _DTYPES for weight in weights]
    return x.dtype in _DTYPES and x.spec.size > 0 and all(fitting)


@emits_composite("rms_norm", "block_quantize", fits=_is_norm)
def _rms_norm_quantize(e: Emitter, group: Group) -> None:
    _quantized_norm(e, group, centred=False)


@emits_composite("zero_centred_rms_norm", "block_quantize", fits=_is_norm)
def _zero_centred_rms_norm_quantize(e: Emitter, group: Group) -> None:
    _quantized_norm(e, group, centred=True)


def _quantized_norm(e: Emitter, group: Group, centred: bool) -> None:
    x, *weights = group.inputs
    eps, bits = float(np.float32(group.attributes[0])), bits_of(group)
    spec = TensorSpec(flat(x.shape), x.dtype)
    given = [SsaValue(e.reshape(e.name(x), x.spec, spec.shape), spec), *e.values(weights)]
    kind = ".".join([*(weight.dtype.name for weight in weights), *(["centred"] if centred else [])]) or "plain"
    case = f"{x.dtype.name}.{spec.shape[0]}x{spec.shape[1]}.{kind}.{in_name(eps)}{bits_in_name(bits)}"

    def body(inner: Emitter, x: SsaValue, *weights: SsaValue) -> list[str]:
        return quantized(inner, SsaValue(_normed(inner, x, weights, eps, centred), spec), bits)

    results = block_specs(spec.shape, bits)
    helper = Helper("rms_norm_quantize", case, {"eps": eps, "centred": centred})
    bind_blocks(e, group, call_helper(e, helper, given, results, body), results)


def _normed(e: Builder, x: SsaValue, weights: tuple[SsaValue, ...], eps: float, centred: bool) -> str:
    """Writes rms_norm of a matrix, with a weight if there is one."""
    dtype = x.spec.dtype
    rows, columns = x.spec.shape
    wide, line = TensorSpec(x.spec.shape, f32), TensorSpec((rows,), f32)
    value = e.convert(x.name, x.spec, f32)
    total = reduced(e, "sum", e.elementwise("multiply", (value, value), wide), wide, (1,))
    mean = e.elementwise("divide", (total, e.filled(columns, line)), line)
    scale = e.elementwise("rsqrt", (e.elementwise("add", (mean, e.filled(eps, line)), line),), line)
    value = e.elementwise("multiply", (value, e.spread(scale, line, wide, (0,))), wide)
    if not weights:
        return e.convert(value, wide, dtype)
    (weight,) = weights
    factors = TensorSpec(weight.spec.shape, f32)
    if centred:
        factor = e.convert(weight.name, weight.spec, f32)
        factor = e.elementwise("add", (factor, e.filled(1, factors)), factors)
    else:
        rounded = e.convert(weight.name, weight.spec, dtype)
        factor = e.convert(rounded, TensorSpec(weight.spec.shape, dtype), f32)
        value = e.convert(e.convert(value, wide, dtype), x.spec, f32)
    factor = e.spread(factor, factors, wide, (1,))
    return e.convert(e.elementwise("multiply", (factor, value), wide), wide, dtype)


def _is_gate(group: Group) -> bool:
    gate, up = group.inputs
    return gate.spec == up.spec and gate.dtype in _DTYPES


@emits_composite("silu", "mul", "block_quantize", fits=_is_gate)
def _silu_quantize(e: Emitter, group: Group) -> None:
    spec = TensorSpec(flat(group.inputs[0].shape), group.inputs[0].dtype)
    given = [SsaValue(e.reshape(e.name(value), value.spec, spec.shape), spec) for value in group.inputs]
    bits = bits_of(group)
    case = f"{spec.dtype.name}.{spec.shape[0]}x{spec.shape[1]}{bits_in_name(bits)}"
    results = block_specs(spec.shape, bits)

    def body(inner: Emitter, gate: SsaValue, up: SsaValue) -> list[str]:
        return quantized(inner, SsaValue(_gated(inner, gate, up), spec), bits)

    bind_blocks(e, group, call_helper(e, Helper("silu_quantize", case), given, results, body), results)


def _gated(e: Builder, gate: SsaValue, up: SsaValue) -> str:
    """Writes silu(gate) * up, each product rounded."""
    spec = gate.spec
    wide = TensorSpec(spec.shape, f32)
    x = e.convert(gate.name, spec, f32)
    active = e.elementwise("multiply", (x, e.elementwise("logistic", (x,), wide)), wide)
    active = e.convert(e.convert(active, wide, spec.dtype), spec, f32)
    product = e.elementwise("multiply", (active, e.convert(up.name, spec, f32)), wide)
    return e.convert(product, wide, spec.dtype)
