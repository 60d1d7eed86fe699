"""Adapters of ONNX's linear attention and of the convolution before it."""

from lang_core import Tensor
from tests.conformance._onnx_node import Node, NotExpressible, adapts


@adapts("LinearAttention")
def _linear_attention(node: Node) -> list[Tensor]:
    """q [B, T, N * Hk], k [B, T, K * Hk], v [B, T, K * Hv]; the state [B, K, Hk, Hv]."""
    ops, q, k, v = node.ops, *(node.tensor(i) for i in range(3))
    heads, shared = node.attribute("q_num_heads"), node.attribute("kv_num_heads")
    rule = node.attribute("update_rule", "gated_delta")
    if node.has(4) != (rule in ("gated", "gated_delta")) or node.has(5) != (rule in ("delta", "gated_delta")):
        raise NotExpressible(f"LinearAttention: operands that the rule {rule} forbids, or lacks")
    size = q.shape[2] // heads
    state, decay, beta = (node.optional(i) for i in (3, 4, 5))
    if decay is not None and decay.shape[2] != shared:
        decay = ops.reshape(decay, (*decay.shape[:2], shared, size))
    if beta is not None:
        beta = ops.broadcast(beta, (*beta.shape[:2], shared))
    result, after = ops.gated_delta_rule(
        ops.reshape(q, (*q.shape[:2], heads, size)),
        ops.reshape(k, (*k.shape[:2], shared, size)),
        ops.reshape(v, (*v.shape[:2], shared, -1)),
        decay,
        beta,
        state,
        scale=node.attribute("scale", 0.0) or None,
    )
    return [ops.reshape(result, (*result.shape[:2], -1)), ops.cast(after, q.dtype if state is None else state.dtype)]


@adapts("CausalConvWithState")
def _causal_conv(node: Node) -> list[Tensor]:
    """x [B, C, T], weight [C, 1, W], state [B, C, W - 1]: channels before tokens."""
    ops, x, weight = node.ops, node.tensor(0), node.tensor(1)
    state = node.optional(3)
    result, after = ops.causal_conv(
        ops.transpose(x, (0, 2, 1)),
        ops.reshape(weight, (weight.shape[0], weight.shape[2])),
        node.optional(2),
        None if state is None else ops.transpose(state, (0, 2, 1)),
    )
    if node.attribute("activation", "none") != "none":
        result = ops.silu(result)
    return [ops.transpose(result, (0, 2, 1)), ops.transpose(after, (0, 2, 1))]
