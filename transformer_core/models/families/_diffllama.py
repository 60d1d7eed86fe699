"""DiffLlama (arXiv:2410.05258): a Llama whose attention subtracts one half of the heads from the other."""

import math
from typing import Any, Final

from lang_core import DType, ExecutionContext, Parameter, Tensor, as_dtype
from transformer_core._config_fields import ConfigFields
from transformer_core.family._config import DecoderConfig, Family
from transformer_core.family._fields import heads_of, llama_kind
from transformer_core.family._layer import DecoderLayer
from transformer_core.layers._attention import Attention
from transformer_core.layers._attention_config import AttentionConfig
from transformer_core.layers._cache import CacheLayout
from transformer_core.layers._kv_cache import cache_spec, kv_layout


class _DifferentialAttention(Attention):
    """Attention whose heads come in pairs, n and n + N / 2, that share values of 2 H dims.

    Args:
        config: sizes and options.
        index: number of the layer.
        eps: eps of the norm of each pair's result.
        dtype: dtype of the parameters.
    """

    def __init__(self, config: AttentionConfig, index: int, eps: float, dtype: DType) -> None:
        super().__init__(config, dtype=dtype)
        self.first, self.eps = 0.8 - 0.6 * math.exp(-0.3 * index), eps
        self.lambda_q1, self.lambda_k1, self.lambda_q2, self.lambda_k2 = (
            Parameter((config.head_size,), dtype) for _ in range(4)
        )

    def placed_values(self, ctx: ExecutionContext, v: Tensor) -> Tensor:
        """Returns values [B, T, K, H] as every head sees them, of two heads each: [B, K, T, 2 H]."""
        ops = ctx.ops
        batch, queries, heads, size = v.shape
        halves = ops.reshape(v, (batch, queries, 2, heads // 2, size))
        pairs = ops.reshape(ops.transpose(halves, (0, 3, 1, 2, 4)), (batch, heads // 2, queries, 2 * size))
        return ops.concat([pairs, pairs], 1)

    def merged(self, ctx: ExecutionContext, heads: Tensor) -> Tensor:
        """Subtracts the second half of the heads [B, T, K, G, 2 H], times lambda, and norms: [B, T, N H]."""
        ops = ctx.ops
        batch, queries = heads.shape[:2]
        size = 2 * self.config.head_size
        first, second = ops.split(
            ops.reshape(heads, (batch, queries, self.config.heads, size)), (self.config.heads // 2,) * 2, 2
        )
        factor = ops.cast(self._factor(ctx), heads.dtype)
        mixed = ops.rms_norm(ops.sub(first, ops.mul(second, factor)), None, self.eps)
        return ops.reshape(ops.mul(mixed, 1.0 - self.first), (batch, queries, -1))

    def _factor(self, ctx: ExecutionContext) -> Tensor:
        """Returns lambda, a scalar."""
        ops = ctx.ops

        def exponential(q: Parameter, k: Parameter) -> Tensor:
            wide = as_dtype(q.spec.dtype).accumulation
            product = ops.mul(ops.cast(ctx.parameter(q), wide), ops.cast(ctx.parameter(k), wide))
            return ops.exp(ops.sum(product, 0))

        difference = ops.sub(exponential(self.lambda_q1, self.lambda_k1), exponential(self.lambda_q2, self.lambda_k2))
        return ops.add(difference, self.first)

    def cache_layout(self, batch: int, capacity: int) -> CacheLayout:
        """Returns the layout: keys [B, K, S, H], values [B, K, S, 2 H]."""
        config, dtype = self.config, self.q_proj.weight.spec.dtype
        sizes = config.head_size, 2 * config.head_size
        key, value = (cache_spec(batch, config.kv_heads, capacity, size, dtype) for size in sizes)
        return kv_layout(key, value, config.window, packable=True)


class _Layer(DecoderLayer):
    """Layer of differential attention."""

    def __init__(self, config: DecoderConfig, index: int, dtype: DType) -> None:
        super().__init__(config, index, dtype)
        plain: Any = self.self_attn
        self.self_attn = _DifferentialAttention(plain.config, index, config.norm_eps, dtype)


def _read(fields: ConfigFields) -> DecoderConfig:
    heads, kv_heads, head_size = heads_of(fields, kv_heads_default=True)
    if kv_heads % 2:
        fields.refuse("num_key_value_heads", "an even number: heads of values come in pairs")
    biased = fields.boolean("attention_bias", False)
    return llama_kind(
        fields,
        DIFFLLAMA.architecture,
        heads=heads,
        kv_heads=kv_heads,
        head_size=head_size,
        norm_eps=fields.number("rms_norm_eps", 1e-5),
        qkv_bias=biased,
        output_bias=biased,
    )


DIFFLLAMA: Final = Family("DiffLlamaForCausalLM", "diffllama", _read, _Layer)
