"""Emission of what stands between products: norms and gates, with the quantising after them, as helper functions."""

from compile_dag import Node
from compile_hlo.emit._calls import call_helper, flat, in_name
from compile_hlo.emit._emitter import Emitter, emits
from compile_hlo.emit._packed import bind_blocks, block_specs, quantized
from compile_hlo.emit._reduce import reduced
from compile_hlo.emit._types import tensor_type
from lang_core import TensorSpec, f32


@emits("rms_norm_quantize")
def _rms_norm_quantize(e: Emitter, node: Node) -> None:
    x, *weights = node.inputs
    eps, centred = node.attributes
    spec = TensorSpec(flat(x.shape), x.dtype)
    given = [(e.reshape(e.name(x), x.spec, spec.shape), spec), *((e.name(each), each.spec) for each in weights)]
    kind = ".".join([*(each.dtype.name for each in weights), *(["centred"] if centred else [])]) or "plain"
    case = f"{x.dtype.name}.{spec.shape[0]}x{spec.shape[1]}.{kind}.{in_name(eps)}"
    results = block_specs(spec.shape)
    found = call_helper(
        e, "rms_norm_quantize", case, given, results, lambda inner: quantized(inner, _normed(inner, node), spec)
    )
    bind_blocks(e, node, found, results)


def _normed(e: Emitter, node: Node) -> str:
    """Of arguments %a0, x as a matrix, and %a1, the weight, if any."""
    x, *weights = node.inputs
    eps, centred = node.attributes
    spec = TensorSpec(flat(x.shape), x.dtype)
    rows, columns = spec.shape
    wide, line = TensorSpec(spec.shape, f32), TensorSpec((rows,), f32)
    kind, sums = tensor_type(wide), tensor_type(line)
    value = e.convert("%a0", spec, f32)
    total = reduced(e, "sum", e.new(f"stablehlo.multiply {value}, {value} : {kind}"), wide, (1,))
    mean = e.new(f"stablehlo.divide {total}, {e.constant(f32.numpy.type(columns), line)} : {sums}")
    above = e.new(f"stablehlo.add {mean}, {e.constant(f32.numpy.type(eps), line)} : {sums}")
    scale = e.new(f"stablehlo.rsqrt {above} : {sums}")
    scale = e.new(f"stablehlo.broadcast_in_dim {scale}, dims = [0] : ({sums}) -> {kind}")
    value = e.new(f"stablehlo.multiply {value}, {scale} : {kind}")
    if not weights:
        return e.convert(value, wide, x.dtype)
    (weight,) = weights
    factors = TensorSpec(weight.shape, f32)
    if centred:
        factor = e.convert("%a1", weight.spec, f32)
        factor = e.new(f"stablehlo.add {factor}, {e.constant(f32.numpy.type(1), factors)} : {tensor_type(factors)}")
    else:
        rounded = e.convert("%a1", weight.spec, x.dtype)
        factor = e.convert(rounded, TensorSpec(weight.shape, x.dtype), f32)
        value = e.convert(e.convert(value, wide, x.dtype), spec, f32)
    factor = e.new(f"stablehlo.broadcast_in_dim {factor}, dims = [1] : ({tensor_type(factors)}) -> {kind}")
    return e.convert(e.new(f"stablehlo.multiply {factor}, {value} : {kind}"), wide, x.dtype)


@emits("silu_quantize")
def _silu_quantize(e: Emitter, node: Node) -> None:
    gate, up = node.inputs
    spec = TensorSpec(flat(gate.shape), gate.dtype)
    given = [(e.reshape(e.name(value), value.spec, spec.shape), spec) for value in (gate, up)]
    case, results = f"{spec.dtype.name}.{spec.shape[0]}x{spec.shape[1]}", block_specs(spec.shape)
    found = call_helper(
        e, "silu_quantize", case, given, results, lambda inner: quantized(inner, _gated(inner, spec), spec)
    )
    bind_blocks(e, node, found, results)


def _gated(e: Emitter, spec: TensorSpec) -> str:
    """silu(%a0) * %a1, each product rounded."""
    wide = TensorSpec(spec.shape, f32)
    kind = tensor_type(wide)
    gate = e.convert("%a0", spec, f32)
    active = e.new(f"stablehlo.multiply {gate}, {e.new(f'stablehlo.logistic {gate} : {kind}')} : {kind}")
    active = e.convert(e.convert(active, wide, spec.dtype), spec, f32)
    product = e.new(f"stablehlo.multiply {active}, {e.convert('%a1', spec, f32)} : {kind}")
    return e.convert(product, wide, spec.dtype)
