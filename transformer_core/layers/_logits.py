"""Logits of the residual stream, and the ids of the largest ones."""

import math

from lang_core import ExecutionContext, Parameter, Tensor, f32
from transformer_core.layers._attention import soft_capped


def logits_of(
    ctx: ExecutionContext,
    x: Tensor,
    weight: Parameter,
    bias: Parameter | None = None,
    *,
    scale: float = 1.0,
    softcap: float | None = None,
) -> Tensor:
    """Computes logits ``x weight^T + bias``, times ``scale``, capped; tagged ``logits``.

    Args:
        ctx: context that computes.
        x: [.., D], normed.
        weight: [V, D], the head's or a tied embedding's.
        bias: [V].
        scale: factor of the logits (Granite, Cohere).
        softcap: c in ``c * tanh(logit / c)`` (Gemma 2, arXiv:2408.00118).

    Returns:
        f32 [.., V]; computed in f32, or wider if the weight is.
    """
    ops, dtype = ctx.ops, weight.spec.dtype
    wide = dtype.accumulation
    table = ctx.parameter(weight)
    if weight.encoding is None:
        product = ops.dot_general(x, table, ((x.ndim - 1,), (1,)), dtype=wide)
    else:
        product = ops.packed_linear(x, table, weight.encoding, wide, weight.activations)
    if bias is not None:
        product = ops.add(product, ops.cast(ctx.parameter(bias), wide))
    if scale != 1.0:
        product = ops.mul(product, scale)
    if softcap is not None:
        product = soft_capped(ctx, product, softcap)
    return ctx.tag(ops.cast(product, f32), "logits")


def next_ids_of(ctx: ExecutionContext, logits: Tensor) -> Tensor:
    """Returns the likeliest next token of each row; a greedy choice then does not need logits on the host.

    Args:
        ctx: context that computes.
        logits: [.., V].

    Returns:
        i32 [..]: the index of the largest logit, the lowest one of equal ones, as NumPy's; -1 if the largest is NaN
        (as it is if any is) or infinite: nothing can be chosen there.
    """
    ops = ctx.ops
    finite = ops.less(ops.abs(ops.max(logits, -1)), math.inf)
    return ops.select(finite, ops.argmax(logits, -1), -1)


def row_of(ctx: ExecutionContext, x: Tensor, last: Tensor | None = None) -> Tensor:
    """A row of each sequence.

    Args:
        ctx: context that computes.
        x: [B, T, D].
        last: i32, the row: of rank 0, the same for all sequences, or [B]; T - 1 if None. Values outside are clamped.

    Returns:
        [B, D].
    """
    ops = ctx.ops
    batch, queries, size = x.shape
    if queries == 1:
        return ops.reshape(x, (batch, size))
    if last is None or not last.ndim:
        x = ops.dynamic_slice(x, (0, queries - 1 if last is None else last, 0), (batch, 1, size))
        return ops.reshape(x, (batch, size))
    rows = ops.add(ops.clamp(last, 0, queries - 1), ops.mul(ops.iota((batch,)), queries))
    return ops.take(ops.reshape(x, (batch * queries, size)), rows)
