"""Masks in which the tokens of a picture see each other in both directions (Gemma 3)."""

from dataclasses import replace

from lang_core import ExecutionContext, Tensor
from transformer_core.layers._step import StepInputs


def with_pictures(
    ctx: ExecutionContext, step: StepInputs, token_ids: Tensor, image_token: int, position: Tensor | None
) -> StepInputs:
    """Returns a step in which each image token also sees the later ones of its picture.

    Earlier tokens are seen as in other steps, by the causal mask and the windows. A picture is a run of image tokens.

    Args:
        ctx: context that computes.
        step: inputs of the layers.
        token_ids: i32 [B, T].
        image_token: placeholder token id; not 0, which is that of padding.
        position: i32 of rank 0 or [B], position of the first token; None without caches.
    """
    ops, (batch, tokens) = ctx.ops, token_ids.shape
    is_image = ops.equal(token_ids, image_token)
    # Tokens of a picture have as many tokens of text before them.
    texts = ops.cumsum(ops.cast(ops.logical_not(is_image), "i32"), 1)
    picture = ops.select(is_image, texts, ops.constant(-1, "i32"))
    by_bias: dict[int, Tensor] = {}
    biases: dict[int | None, Tensor | None] = {}
    for window, bias in step.biases.items():
        if bias is not None and id(bias) not in by_bias:
            ahead = _ahead(ctx, picture, bias.shape[-1], position)
            wide = ops.broadcast(bias, (batch, tokens, bias.shape[-1]))
            by_bias[id(bias)] = ops.select(ahead, ops.constant(0.0, "f32"), wide)
        biases[window] = None if bias is None else by_bias[id(bias)]
    return replace(step, biases=biases)


def _ahead(ctx: ExecutionContext, picture: Tensor, keys: int, position: Tensor | None) -> Tensor:
    """Returns bool [B, T, S], true if a key is of a later token of the query's picture.

    Args:
        ctx: context that computes.
        picture: i32 [B, T], number of each token's picture, -1 of text.
        keys: S; the token t of the call has its key at ``position + t``, mod S in rings.
        position: i32 of rank 0 or [B]; 0 if None.
    """
    ops, (batch, tokens) = ctx.ops, picture.shape
    places = ops.iota((1, keys), 1)
    if position is not None:
        begin = ops.rem(position, keys)
        begin = ops.reshape(begin, (batch, 1)) if begin.ndim else begin
        places = ops.rem(ops.add(ops.sub(places, begin), keys), keys)
    rows = ops.mul(ops.iota((batch, 1), 0), tokens)
    index = ops.add(ops.minimum(places, tokens - 1), rows)  # [B, S]
    of_keys = ops.reshape(ops.take(ops.reshape(picture, (batch * tokens,)), index, 0), (batch, 1, keys))
    later = ops.greater(ops.reshape(places, (-1, 1, keys)), ops.iota((tokens, 1), 0))
    within = ops.less(ops.reshape(places, (-1, 1, keys)), tokens)
    of_queries = ops.reshape(picture, (batch, tokens, 1))
    same = ops.logical_and(ops.equal(of_queries, of_keys), ops.greater_equal(of_queries, 0))
    return ops.logical_and(same, ops.logical_and(later, within))
