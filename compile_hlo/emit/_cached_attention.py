"""Emission of attention over a cache: a helper function, which a kernel may replace."""

import math
from collections.abc import Callable

from compile_dag import Node
from compile_hlo.emit._calls import call_helper, in_name
from compile_hlo.emit._emitter import Emitter, emits
from compile_hlo.emit._packed import bind_blocks, block_specs, quantized
from compile_hlo.emit._reduce import reduced
from compile_hlo.emit._types import tensor_type
from lang_core import TensorSpec, f32


@emits("cached_attention")
def _cached_attention(e: Emitter, node: Node) -> None:
    case, spec, body = _call(node)
    given = [(e.name(value), value.spec) for value in node.inputs]
    e.alias(node, call_helper(e, "cached_attention", case, given, (spec,), lambda inner: [body(inner)]))


@emits("cached_attention_quantize")
def _cached_attention_quantize(e: Emitter, node: Node) -> None:
    case, spec, body = _call(node)
    given = [(e.name(value), value.spec) for value in node.inputs]
    flat = TensorSpec((spec.shape[0], math.prod(spec.shape[1:])), spec.dtype)
    results = block_specs(flat.shape)

    def blocks(inner: Emitter) -> list[str]:
        return quantized(inner, inner.reshape(body(inner), spec, flat.shape), flat)

    bind_blocks(e, node, call_helper(e, "cached_attention_quantize", case, given, results, blocks), results)


def _call(node: Node) -> tuple[str, TensorSpec, Callable[[Emitter], str]]:
    """The case, the spec of the result, and what writes the body and returns its name."""
    q, k, v, bias = (value.spec for value in node.inputs)
    (scale,) = node.attributes
    shape = (*q.shape[:4], v.shape[3])
    sizes = "x".join(map(str, (*q.shape, *v.shape[2:], bias.shape[0])))
    wide = TensorSpec(shape, f32)
    return (
        f"{v.dtype.name}.{sizes}.{in_name(scale)}",
        TensorSpec(shape, v.dtype),
        lambda inner: inner.convert(_attended(inner, q, k, v, bias, scale), wide, v.dtype),
    )


def _attended(e: Emitter, q: TensorSpec, k: TensorSpec, v: TensorSpec, bias: TensorSpec, scale: float) -> str:
    """f32 [B, K, G, T, H'] of arguments %a0 to %a3."""
    scores = TensorSpec((*q.shape[:4], k.shape[2]), f32)
    kind, line = tensor_type(scores), TensorSpec(q.shape[:4], f32)

    def over(name: str, dims: str, source: TensorSpec) -> str:
        return e.new(f"stablehlo.broadcast_in_dim {name}, dims = {dims} : ({tensor_type(source)}) -> {kind}")

    x = e.new(
        f"stablehlo.dot_general %a0, %a1, batching_dims = [0, 1] x [0, 1], contracting_dims = [4] x [3] : "
        f"({tensor_type(q)}, {tensor_type(k)}) -> {kind}"
    )
    x = e.new(f"stablehlo.multiply {x}, {e.constant(f32.numpy.type(scale), scores)} : {kind}")
    rows = e.reshape("%a3", bias, bias.shape[1:]) if bias.shape[0] == 1 else "%a3"
    wide = (
        over(rows, "[3, 4]", TensorSpec(bias.shape[1:], f32)) if bias.shape[0] == 1 else over(rows, "[0, 3, 4]", bias)
    )
    x = e.new(f"stablehlo.add {x}, {wide} : {kind}")
    most = over(reduced(e, "max", x, scores, (4,)), "[0, 1, 2, 3]", line)
    x = e.new(f"stablehlo.exponential {e.new(f'stablehlo.subtract {x}, {most} : {kind}')} : {kind}")
    total = over(reduced(e, "sum", x, scores, (4,)), "[0, 1, 2, 3]", line)
    x = e.new(f"stablehlo.divide {x}, {total} : {kind}")
    weights = TensorSpec(scores.shape, v.dtype)
    result = TensorSpec((*q.shape[:4], v.shape[3]), f32)
    return e.new(
        f"stablehlo.dot_general {e.convert(x, scores, v.dtype)}, %a2, batching_dims = [0, 1] x [0, 1], "
        f"contracting_dims = [4] x [2] : ({tensor_type(weights)}, {tensor_type(v)}) -> {tensor_type(result)}"
    )
