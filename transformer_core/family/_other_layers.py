"""Layers that combine norms, attention and feed-forward otherwise than a Llama."""

from lang_core import DType, ExecutionContext, Tensor
from transformer_core.family._config import DecoderConfig
from transformer_core.family._layer import AttentionLayer, norm
from transformer_core.layers._kv_cache import KVCache
from transformer_core.layers._step import StepInputs


class PostNormLayer(AttentionLayer):
    """Layer ``x + norm(attention(x))``, then ``x + norm(mlp(x))`` (OLMo-2)."""

    def __init__(self, config: DecoderConfig, index: int, dtype: DType) -> None:
        super().__init__(config, index, dtype)
        self.post_attention_layernorm = norm(config, dtype)
        self.post_feedforward_layernorm = norm(config, dtype)

    def forward(
        self, ctx: ExecutionContext, x: Tensor, step: StepInputs, cache: KVCache | None = None
    ) -> tuple[Tensor, KVCache | None]:
        """Runs the layer on x [B, T, D]: the same shape, and the updated cache."""
        x = ctx.tag(x, "input")
        attended, cache = self.self_attn(ctx, x, step, cache)
        x = ctx.ops.add(x, ctx.tag(self.post_attention_layernorm(ctx, attended), "self_attn.output"))
        forwarded = self.post_feedforward_layernorm(ctx, self.mlp(ctx, x))
        return ctx.tag(ctx.ops.add(x, ctx.tag(forwarded, "mlp.output")), "output"), cache


class NormedSumLayer(AttentionLayer):
    """Layer ``norm(x + attention(x))``, then ``norm(x + mlp(x))`` (GPT-1)."""

    def __init__(self, config: DecoderConfig, index: int, dtype: DType) -> None:
        super().__init__(config, index, dtype)
        self.input_layernorm = norm(config, dtype)
        self.post_attention_layernorm = norm(config, dtype)

    def forward(
        self, ctx: ExecutionContext, x: Tensor, step: StepInputs, cache: KVCache | None = None
    ) -> tuple[Tensor, KVCache | None]:
        """Runs the layer on x [B, T, D]: the same shape, and the updated cache."""
        x = ctx.tag(x, "input")
        attended, cache = self.self_attn(ctx, x, step, cache)
        x = self.input_layernorm(ctx, ctx.ops.add(x, ctx.tag(attended, "self_attn.output")))
        forwarded = ctx.tag(self.mlp(ctx, x), "mlp.output")
        return ctx.tag(self.post_attention_layernorm(ctx, ctx.ops.add(x, forwarded)), "output"), cache


class SandwichLayer(AttentionLayer):
    """Layer ``x + norm(attention(norm(x)))``, then ``x + norm(mlp(norm(x)))`` (Gemma 2, GLM-4)."""

    def __init__(self, config: DecoderConfig, index: int, dtype: DType) -> None:
        super().__init__(config, index, dtype)
        self.input_layernorm = norm(config, dtype)
        self.post_attention_layernorm = norm(config, dtype)
        self.pre_feedforward_layernorm = norm(config, dtype)
        self.post_feedforward_layernorm = norm(config, dtype)

    def forward(
        self, ctx: ExecutionContext, x: Tensor, step: StepInputs, cache: KVCache | None = None
    ) -> tuple[Tensor, KVCache | None]:
        """Runs the layer on x [B, T, D]: the same shape, and the updated cache."""
        x, cache = self.summed(ctx, ctx.tag(x, "input"), step, cache)
        return ctx.tag(x, "output"), cache

    def summed(
        self, ctx: ExecutionContext, x: Tensor, step: StepInputs, cache: KVCache | None
    ) -> tuple[Tensor, KVCache | None]:
        """Adds attention and feed-forward to x [B, T, D]."""
        attended, cache = self.self_attn(ctx, self.input_layernorm(ctx, x), step, cache)
        x = ctx.ops.add(x, ctx.tag(self.post_attention_layernorm(ctx, attended), "self_attn.output"))
        forwarded = self.post_feedforward_layernorm(ctx, self.forwarded(ctx, x))
        return ctx.ops.add(x, ctx.tag(forwarded, "mlp.output")), cache

    def forwarded(self, ctx: ExecutionContext, x: Tensor) -> Tensor:
        """Computes the feed-forward of x [B, T, D], before its last norm."""
        return self.mlp(ctx, self.pre_feedforward_layernorm(ctx, x))


class ParallelLayer(AttentionLayer):
    """Layer ``x + attention(norm(x)) + mlp(norm(x))``, with one norm for both or one for each (GPT-NeoX).

    Args:
        config: configuration of the model.
        index: number of the layer.
        dtype: dtype of the parameters.
        one_norm: whether there is one norm for both.
    """

    def __init__(self, config: DecoderConfig, index: int, dtype: DType, *, one_norm: bool = False) -> None:
        super().__init__(config, index, dtype)
        self.input_layernorm = norm(config, dtype)
        self.post_attention_layernorm = None if one_norm else norm(config, dtype)

    def forward(
        self, ctx: ExecutionContext, x: Tensor, step: StepInputs, cache: KVCache | None = None
    ) -> tuple[Tensor, KVCache | None]:
        """Runs the layer on x [B, T, D]: the same shape, and the updated cache."""
        x = ctx.tag(x, "input")
        normed = self.input_layernorm(ctx, x)
        attended, cache = self.self_attn(ctx, normed, step, cache)
        other = normed if self.post_attention_layernorm is None else self.post_attention_layernorm(ctx, x)
        forwarded = ctx.tag(self.mlp(ctx, other), "mlp.output")
        x = ctx.ops.add(x, ctx.tag(attended, "self_attn.output"))
        return ctx.tag(ctx.ops.add(x, forwarded), "output"), cache
