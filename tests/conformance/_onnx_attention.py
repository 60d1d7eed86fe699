"""Adapters of ONNX's parts of transformers: attention and rotary embedding."""

import math

from lang_core import DType, Tensor, bool_, i64
from lang_core.ops import Ops
from tests.conformance._onnx_node import Node, NotExpressible, Value, adapts, dtype_numbered
from transformer_core import RopeMode, apply_rope


def _heads(ops: Ops, x: Tensor, count: int | None) -> Tensor:
    """[B, T, N * H] as [B, N, T, H]."""
    if x.ndim == 4:
        return x
    if not count:
        raise NotExpressible("operands of three axes without a number of heads")
    return ops.transpose(ops.reshape(x, (*x.shape[:2], count, x.shape[2] // count)), (0, 2, 1, 3))


@adapts("Attention")
def _attention(node: Node) -> list[Tensor | None]:
    ops = node.ops
    flat = node.tensor(0).ndim == 3
    q = _heads(ops, node.tensor(0), node.attribute("q_num_heads"))
    k, v = (_heads(ops, node.tensor(i), node.attribute("kv_num_heads")) for i in (1, 2))
    if node.has(4):
        k, v = ops.concat([node.tensor(4), k], 2), ops.concat([node.tensor(5), v], 2)
    scale, cap = node.attribute("scale"), node.attribute("softcap", 0.0)
    mask, bias = _masks(node, q, k)
    result = ops.attention(q, k, v, mask, scale=scale, softcap=cap or None, bias=bias)
    scores = _scores(node, q, k, scale, cap, mask, bias, q.dtype) if node.wants(3) else None
    if flat:
        result = ops.transpose(result, (0, 2, 1, 3))
        result = ops.reshape(result, (*result.shape[:2], -1))
    return [result, k, v, scores]


def _masks(node: Node, q: Tensor, k: Tensor) -> tuple[Tensor | None, Tensor | None]:
    """Combines masks and biases; returns where queries may look, and what is added to the scores."""
    ops, queries, keys = node.ops, q.shape[2], k.shape[2]
    masks, bias = [], None
    if node.has(3):
        given = node.tensor(3)
        short = keys - given.shape[-1]
        if short > 0:
            high = [0] * (given.ndim - 1) + [short]
            given = ops.pad(given, [0] * given.ndim, high, False if given.dtype is bool_ else -math.inf)
        if given.dtype is bool_:
            masks.append(given)
        else:
            bias = given
    # The distance from query to key, both counted from the first key.
    past = node.tensor(4).shape[2] if node.has(4) else 0
    offset = ops.constant(past, i64)
    if node.has(6):
        lengths = ops.reshape(ops.cast(node.tensor(6), i64), (-1, 1, 1, 1))
        offset = ops.sub(lengths, queries)
        masks.append(ops.less(ops.iota((1, 1, 1, keys), 3, i64), lengths))
    grid = (1, 1, queries, keys)
    distance = ops.add(ops.sub(ops.iota(grid, 2, i64), ops.iota(grid, 3, i64)), offset)
    left, right = node.attribute("left_window_size", -1), node.attribute("right_window_size", -1)
    if node.attribute("is_causal", 0):
        masks.append(ops.greater_equal(distance, 0))
    if left >= 0:
        masks.append(ops.less_equal(distance, left))
    if right >= 0:
        masks.append(ops.greater_equal(distance, -right))
    mask = None
    for more in masks:
        mask = more if mask is None else ops.logical_and(mask, more)
    return mask, bias


def _scores(
    node: Node,
    q: Tensor,
    k: Tensor,
    scale: float | None,
    cap: float,
    mask: Tensor | None,
    bias: Tensor | None,
    dtype: DType,
) -> Tensor:
    """The scores at a stage: 0 scaled, 1 capped, 2 with what is added, 3 softmax."""
    ops, mode = node.ops, node.attribute("qk_matmul_output_mode", 0)
    keys = _per_query_head(ops, ops.cast(k, k.dtype.accumulation), q.shape[1])
    scores = ops.dot_general(ops.cast(q, keys.dtype), keys, ((3,), (3,)), ((0, 1), (0, 1)))
    scores = ops.mul(scores, q.shape[-1] ** -0.5 if scale is None else scale)
    if mode >= 1 and cap:
        scores = ops.mul(ops.tanh(ops.div(scores, cap)), cap)
    if mode >= 2 and bias is not None:
        scores = ops.add(scores, ops.cast(bias, scores.dtype))
    if mode >= 2 and mask is not None:
        scores = ops.select(mask, scores, -math.inf)
    if mode == 3:
        scores = ops.softmax(scores, where=ops.greater(scores, -math.inf))
    return ops.cast(scores, dtype)


def _per_query_head(ops: Ops, x: Tensor, heads: int) -> Tensor:
    """[B, K, S, H] as [B, N, S, H]: each head as often as query heads read it."""
    batch, shared, *rest = x.shape
    spread = ops.broadcast(ops.reshape(x, (batch, shared, 1, *rest)), (batch, shared, heads // shared, *rest))
    return ops.reshape(spread, (batch, heads, *rest))


@adapts("ai.onnx.preview.FlexAttention")
def _flex_attention(node: Node) -> Tensor:
    """Scores and weights go through graphs of the node's own."""
    ops, (q, k, v) = node.ops, node.tensors()
    wanted = node.attribute("softmax_precision")
    precision = q.dtype.accumulation if wanted is None else dtype_numbered(wanted)
    values = _per_query_head(ops, v, q.shape[1])
    result = ops.cast(_scores(node, q, k, node.attribute("scale"), 0.0, None, None, q.dtype.accumulation), precision)
    if node.attribute("score_mod") is not None:
        (result,) = node.tensors_of(node.run(node.graph_attribute("score_mod"), [Value(tensor=result)]))
    result = ops.softmax(result, where=ops.greater(result, -math.inf))
    if node.attribute("prob_mod") is not None:
        (result,) = node.tensors_of(node.run(node.graph_attribute("prob_mod"), [Value(tensor=result)]))
    return ops.dot_general(ops.cast(result, v.dtype), values, ((3,), (2,)), ((0, 1), (0, 1)))


@adapts("RotaryEmbedding")
def _rotary_embedding(node: Node) -> Tensor:
    """Caches hold each angle once; our tables hold it for both of a pair, the sine with the sign."""
    ops = node.ops
    shape = node.tensor(0).shape
    heads = node.attribute("num_heads", 0) or (shape[1] if len(shape) == 4 else 0)
    x = _heads(ops, node.tensor(0), heads)  # [B, N, T, H]
    tables = [node.tensor(1), node.tensor(2)]
    if node.has(3):
        tables = [ops.take(table, node.tensor(3)) for table in tables]
    cos, sin = (ops.reshape(table, (table.shape[0], 1, *table.shape[1:])) for table in tables)
    mode = RopeMode.INTERLEAVED if node.attribute("interleaved", 0) else RopeMode.SPLIT_HALF
    size = node.attribute("rotary_embedding_dim", 0) or x.shape[-1]
    if size != 2 * cos.shape[-1]:
        raise NotExpressible(f"caches of {cos.shape[-1]} angles for {size} rotated dims")
    result = apply_rope(node.ctx, x, _both(ops, cos, cos, mode), _both(ops, ops.negate(sin), sin, mode), mode)
    return result if len(shape) == 4 else ops.reshape(ops.transpose(result, (0, 2, 1, 3)), shape)


def _both(ops: Ops, first: Tensor, second: Tensor, mode: RopeMode) -> Tensor:
    """The two halves side by side, or in turns."""
    if mode is RopeMode.SPLIT_HALF:
        return ops.concat([first, second], -1)
    columns = [ops.reshape(part, (*part.shape, 1)) for part in (first, second)]
    return ops.reshape(ops.concat(columns, -1), (*first.shape[:-1], -1))
