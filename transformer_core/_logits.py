"""From the residual stream to logits."""

from lang_core import ExecutionContext, Parameter, Tensor, f32
from transformer_core._attention import soft_capped


def logits_of(
    ctx: ExecutionContext,
    x: Tensor,
    weight: Parameter,
    bias: Parameter | None = None,
    *,
    scale: float = 1.0,
    softcap: float | None = None,
) -> Tensor:
    """``x weight^T + bias``, times ``scale``, capped; tagged ``logits``.

    Args:
        ctx: where to compute.
        x: [.., D], normed.
        weight: [V, D], a head's or, where they are tied, the embedding's.
        bias: [V].
        scale: of the logits (Granite, Cohere).
        softcap: c in ``c * tanh(logit / c)`` (Gemma 2, arXiv:2408.00118).

    Returns:
        f32 [.., V]; computed in f32, or wider where the weight is.
    """
    ops, dtype = ctx.ops, weight.spec.dtype
    wide = f32 if dtype.itemsize == 2 else dtype
    product = ops.dot_general(x, ctx.parameter(weight), ((x.ndim - 1,), (1,)), dtype=wide)
    if bias is not None:
        product = ops.add(product, ops.cast(ctx.parameter(bias), wide))
    if scale != 1.0:
        product = ops.mul(product, scale)
    if softcap is not None:
        product = soft_capped(ctx, product, softcap)
    return ctx.tag(ops.cast(product, f32), "logits")
