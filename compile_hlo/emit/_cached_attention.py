"""Emission of attention over a cache: a helper function, which a kernel may replace.

Axes: B batch, K key/value heads, G query heads that share one of those, T queries, S positions of the cache, H sizes.
"""

import math
from typing import Final

from compile_dag import Node
from compile_hlo.emit._builder import Builder, SsaValue
from compile_hlo.emit._calls import call_helper, in_name
from compile_hlo.emit._contract import product
from compile_hlo.emit._emitter import Emitter, emits, emits_composite
from compile_hlo.emit._helpers import Helper
from compile_hlo.emit._packed import bind_blocks, bits_in_name, bits_of, block_specs, quantized
from compile_hlo.emit._reduce import reduced
from compile_hlo.emit._slices import rows_of
from compile_hlo.emit._types import tensor_type
from compile_hlo.emit._unpacking import unpacked
from compile_hlo.passes import Group
from lang_core import BLOCK, Encoding, TensorSpec, f32

_MOST_SUMS: Final = 4096  # of heads that share keys: what a kernel of attention keeps until the end
_PAGED: Final = 2  # rank of rows of which each sequence has several
_HEADS_LAST: Final = (0, 3, 1, 2, 4)


@emits("cached_attention")
def _cached_attention(e: Emitter, node: Node) -> None:
    _emit(e, node, None)


@emits("packed_cached_attention")
def _packed_cached_attention(e: Emitter, node: Node) -> None:
    _emit(e, node, node.attributes[1])


def _emit(e: Emitter, node: Node, encoding: Encoding | None) -> None:
    """Calls the function of attention over caches that may be packed."""
    spec = _result(node, encoding)

    def body(inner: Emitter, *given: SsaValue) -> list[str]:
        return [_attended(inner, *given, scale=node.attributes[0], encoding=encoding)]

    helper = _helper(node.op.name, node, encoding)
    e.alias(node, call_helper(e, helper, e.values(node.inputs), (spec,), body))


def _is_one_query(group: Group) -> bool:
    """Returns whether this is attention of one query: its heads are then side by side in a row per sequence."""
    attention, turned, flat, _ = group.members
    batch, _, shared, queries, size = attention.results[0].shape
    rows = flat.results[0]
    if turned.attributes != (_HEADS_LAST,) or queries != 1 or size % BLOCK or shared * size > _MOST_SUMS:
        return False
    return rows.shape[-1] * batch == rows.spec.size


@emits_composite("cached_attention", "transpose", "reshape", "block_quantize", fits=_is_one_query)
def _cached_attention_quantize(e: Emitter, node: Group) -> None:
    _emit_blocks(e, node, None)


@emits_composite("packed_cached_attention", "transpose", "reshape", "block_quantize", fits=_is_one_query)
def _packed_cached_attention_quantize(e: Emitter, node: Group) -> None:
    _emit_blocks(e, node, node.attributes[1])


def _emit_blocks(e: Emitter, node: Group, encoding: Encoding | None) -> None:
    """Calls the function of attention over caches that may be packed, with a quantized result."""
    spec = _result(node, encoding)
    flat = TensorSpec((spec.shape[0], math.prod(spec.shape[1:])), spec.dtype)
    bits = bits_of(node)
    results = block_specs(flat.shape, bits)
    helper = _helper(f"{node.members[0].op.name}_quantize", node, encoding, bits_in_name(bits))

    def body(inner: Emitter, *given: SsaValue) -> list[str]:
        heads = _attended(inner, *given, scale=node.attributes[0], encoding=encoding)
        return quantized(inner, SsaValue(inner.reshape(heads, spec, flat.shape), flat), bits)

    call = call_helper(e, helper, e.values(node.inputs), results, body)
    bind_blocks(e, node, call, results)


def _result(node: Node, encoding: Encoding | None) -> TensorSpec:
    """Returns the spec of the attention, [B, K, G, T, H']."""
    q, _, v, *_ = node.inputs
    width = v.shape[3]
    return TensorSpec((*q.shape[:4], width if encoding is None else encoding.columns(width) or 0), q.dtype)


def _helper(kind: str, node: Node, encoding: Encoding | None, bits: str = "") -> Helper:
    q, _, v, bias, *rows = node.inputs
    sizes = "x".join(map(str, (*q.shape, *v.shape[2:], bias.shape[0])))
    sizes += f"of{v.shape[0]}" if rows else ""
    sizes += "".join(f"by{row.shape[1]}" for row in rows if row.ndim == _PAGED)
    scale = node.attributes[0]
    case, attributes = f"{q.dtype.name}.{sizes}.{in_name(scale)}{bits}", {"scale": scale}
    if encoding is None:
        return Helper(kind, case, attributes)
    return Helper(kind, f"{encoding.name}.{case}", {**attributes, "encoding": encoding.name})


def _attended(
    e: Builder,
    q: SsaValue,
    k: SsaValue,
    v: SsaValue,
    bias: SsaValue,
    *rows: SsaValue,
    scale: float,
    encoding: Encoding | None,
) -> str:
    """Writes the attention of q [B, K, G, T, H], k [B, K, S, H], v [B, K, S, H'], bias [B or 1, T, S], rows [B].

    With rows [B, M], k and v are pages [P, K, S / M, H]. With an encoding k and v are packed along their last axis.
    """
    for row in rows:
        k, v = _chosen(e, k, row), _chosen(e, v, row)
    dtype = q.spec.dtype
    if encoding is not None:
        k, v = unpacked(e, k, encoding), unpacked(e, v, encoding)
        q = SsaValue(e.convert(q.name, q.spec, f32), TensorSpec(q.spec.shape, f32))
    lines = TensorSpec(q.spec.shape[:4], f32)
    scores = TensorSpec((*lines.shape, k.spec.shape[2]), f32)
    x = product(e, q, k, ((4,), (3,), (0, 1), (0, 1)), scores)
    x = e.elementwise("multiply", (x, e.filled(scale, scores)), scores)
    x = e.elementwise("add", (x, _over_scores(e, bias, scores)), scores)
    most = e.spread(reduced(e, "max", x, scores, (4,)), lines, scores, (0, 1, 2, 3))
    x = e.elementwise("exponential", (e.elementwise("subtract", (x, most), scores),), scores)
    total = e.spread(reduced(e, "sum", x, scores, (4,)), lines, scores, (0, 1, 2, 3))
    x = e.elementwise("divide", (x, total), scores)
    weights = SsaValue(e.convert(x, scores, v.spec.dtype), TensorSpec(scores.shape, v.spec.dtype))
    result = TensorSpec((*lines.shape, v.spec.shape[3]), f32)
    return e.convert(product(e, weights, v, ((4,), (2,), (0, 1), (0, 1)), result), result, dtype)


def _chosen(e: Builder, cache: SsaValue, rows: SsaValue) -> SsaValue:
    """Writes of a cache the entries of each sequence's row, or of all its rows: [B, K, S, H]."""
    if rows.spec.ndim < _PAGED:
        return rows_of(e, cache, rows)
    (batch, pages), (_, heads, page, size) = rows.spec.shape, cache.spec.shape
    flat = TensorSpec((batch * pages,), rows.spec.dtype)
    taken = rows_of(e, cache, SsaValue(e.reshape(rows.name, rows.spec, flat.shape), flat))
    apart = TensorSpec((batch, pages, heads, page, size), cache.spec.dtype)
    whole = TensorSpec((batch, heads, pages * page, size), cache.spec.dtype)
    by_heads = TensorSpec((batch, heads, pages, page, size), cache.spec.dtype)
    name = e.reshape(taken.name, taken.spec, apart.shape)
    turned = e.new(
        f"stablehlo.transpose {name}, dims = [0, 2, 1, 3, 4] : ({tensor_type(apart)}) -> {tensor_type(by_heads)}"
    )
    return SsaValue(e.reshape(turned, by_heads, whole.shape), whole)


def _over_scores(e: Builder, bias: SsaValue, scores: TensorSpec) -> str:
    """Broadcasts a bias [B or 1, T, S] over scores [B, K, G, T, S]."""
    if bias.spec.shape[0] != 1:
        return e.spread(bias.name, bias.spec, scores, (0, 3, 4))
    rows = TensorSpec(bias.spec.shape[1:], f32)
    return e.spread(e.reshape(bias.name, bias.spec, rows.shape), rows, scores, (3, 4))
