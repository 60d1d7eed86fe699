"""Whisper's decoder."""

from collections.abc import Sequence

from lang_core import DType, ExecutionContext, Module, Repeated, Tensor
from transformer_core.layers._embedding import Embedding, TokenEmbedding
from transformer_core.layers._kv_cache import KVCache
from transformer_core.layers._masks import causal_mask, mask_bias
from transformer_core.models.encoders._cross_layer import CrossLayer, cross_keys_values
from transformer_core.models.encoders._stack import layer_norm
from transformer_core.models.encoders._whisper_config import WhisperConfig


class WhisperDecoder(Module):
    """Decoder: embeddings of tokens and positions, the layers, and a norm."""

    def __init__(self, config: WhisperConfig, dtype: DType) -> None:
        hidden = config.decoder.hidden
        self.embed_tokens = TokenEmbedding(config.vocabulary, hidden, dtype=dtype)
        self.embed_positions = Embedding(config.targets, hidden, dtype=dtype)
        self.layers = Repeated(config.decoder.layers, lambda index: CrossLayer(config.decoder, dtype))
        self.norm = layer_norm(config.decoder, dtype)
        self._alignment = config.alignment

    def forward(
        self,
        ctx: ExecutionContext,
        token_ids: Tensor,
        crosses: Sequence[KVCache],
        caches: Sequence[KVCache] | None = None,
        position: Tensor | None = None,
    ) -> tuple[Tensor, tuple[KVCache, ...]]:
        """Runs the layers on new tokens.

        Args:
            ctx: context that computes.
            token_ids: i32 [B, T].
            crosses: result of ``cross_keys_values``.
            caches: caches of earlier tokens, one per layer, or None.
            position: rank-0 i32, position of the first token; None without caches.

        Returns:
            The residual stream [B, T, D], normed, and the updated caches.
        """
        ops, tokens = ctx.ops, token_ids.shape[1]
        positions = ops.iota((tokens,)) if position is None else ops.add(ops.iota((tokens,)), position)
        x = ops.add(self.embed_tokens(ctx, token_ids), self.embed_positions(ctx, positions))
        keys = tokens if caches is None else caches[0].capacity
        bias = mask_bias(ctx, causal_mask(ctx, tokens, keys, position=position))
        updated: list[KVCache] = []
        for index, layer in enumerate(self.layers):
            with ctx.block(layer.path):
                x, cache = layer(ctx, x, crosses[index], bias, None if caches is None else caches[index], position)
            updated.append(cache)
        return self.norm(ctx, x), tuple(updated)

    def alignment(
        self, ctx: ExecutionContext, token_ids: Tensor, crosses: Sequence[KVCache], last_keys: Tensor
    ) -> Tensor:
        """Returns the weights f32 [B, M, T, S'] with which the alignment heads attend to the encoder's states.

        Args:
            ctx: context that computes.
            token_ids: i32 [B, T], from the first token on.
            crosses: result of ``cross_keys_values`` of the layers before the last one that has such heads.
            last_keys: keys [B, N, S', H] of that layer.
        """
        ops, tokens, weights = ctx.ops, token_ids.shape[1], list[Tensor]()
        x = ops.add(self.embed_tokens(ctx, token_ids), self.embed_positions(ctx, ops.iota((tokens,))))
        bias = mask_bias(ctx, causal_mask(ctx, tokens, tokens))
        for index, layer in enumerate(self.layers):
            assert isinstance(layer, CrossLayer)
            heads = [head for place, head in self._alignment if place == index]
            last = index == len(crosses)
            x, _ = layer.attended(ctx, x, bias)
            if heads:
                keys = last_keys if last else crosses[index].key
                weights.append(layer.cross_attn.weights(ctx, layer.before_cross(ctx, x), keys, heads))
            if last:
                break
            x = layer.crossed(ctx, x, crosses[index])
        return ops.concat(weights, 1)

    def cross_keys_values(self, ctx: ExecutionContext, states: Tensor) -> tuple[KVCache, ...]:
        """Computes each layer's keys and values [B, N, S', H] of the encoder's states [B, S', D]."""
        return cross_keys_values(ctx, self.layers, states)
