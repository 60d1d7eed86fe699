"""OLMo-2 (arXiv:2501.00656): norms after attention and feed-forward, and over all heads of queries and keys."""

from typing import Final

from lang_core import DType, ExecutionContext, Tensor
from transformer_core._config_fields import ConfigFields
from transformer_core._kv_cache import KVCache
from transformer_core._step import Step
from transformer_core.models._config import DecoderConfig, Family
from transformer_core.models._fields import heads_of, llama_kind
from transformer_core.models._layer import AttentionLayer, norm


class PostNormLayer(AttentionLayer):
    """``x + norm(attention(x))``, then ``x + norm(mlp(x))``."""

    def __init__(self, config: DecoderConfig, index: int, dtype: DType) -> None:
        super().__init__(config, index, dtype)
        self.post_attention_layernorm = norm(config, dtype)
        self.post_feedforward_layernorm = norm(config, dtype)

    def forward(
        self, ctx: ExecutionContext, x: Tensor, step: Step, cache: KVCache | None = None
    ) -> tuple[Tensor, KVCache | None]:
        """x [B, T, D]: the same shape, and the updated cache."""
        x = ctx.tag(x, "input")
        attended, cache = self.self_attn(ctx, x, step, cache)
        attended = ctx.tag(self.post_attention_layernorm(ctx, attended), "self_attn.output")
        x = ctx.ops.add(x, attended)
        forwarded = ctx.tag(self.post_feedforward_layernorm(ctx, self.mlp(ctx, x)), "mlp.output")
        return ctx.tag(ctx.ops.add(x, forwarded), "output"), cache


def _read(fields: ConfigFields) -> DecoderConfig:
    heads, kv_heads, head_size = heads_of(fields, kv_heads_default=True)
    biased = fields.boolean("attention_bias", False)
    return llama_kind(
        fields,
        OLMO2.architecture,
        heads=heads,
        kv_heads=kv_heads,
        head_size=head_size,
        qkv_bias=biased,
        output_bias=biased,
        qk_norm=True,
        qk_norm_whole=True,
        norm_eps=fields.number("rms_norm_eps", 1e-5),
    )


OLMO2: Final = Family("Olmo2ForCausalLM", "olmo2", _read, PostNormLayer)
