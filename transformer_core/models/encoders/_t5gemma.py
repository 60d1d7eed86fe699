"""T5Gemma (Zhang et al. 2025, arXiv:2504.06225): Gemma 2's layers as encoder and decoder, with cross-attention."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Self

from lang_core import (
    ConfigError,
    DType,
    ExecutionContext,
    Module,
    Repeated,
    Tensor,
    checked_choices,
)
from transformer_core._config_fields import ConfigFields
from transformer_core.checkpoints import RenamedModules
from transformer_core.family._config import DecoderConfig
from transformer_core.family._layer import attention, feed_forward, norm
from transformer_core.family._model import DEFAULT_SEQUENCE, ModelFamily, check_size
from transformer_core.family._other_layers import SandwichLayer
from transformer_core.family._registry import family_named
from transformer_core.flow import CompileProfile
from transformer_core.layers._attention import grouped_attention
from transformer_core.layers._embedding import TokenEmbedding
from transformer_core.layers._kv_cache import KVCache
from transformer_core.layers._linear import Linear, VocabularyLinear
from transformer_core.layers._logits import logits_of
from transformer_core.layers._masks import mask_bias, near_mask, token_distances
from transformer_core.layers._rope import rope_tables
from transformer_core.layers._step import StepInputs, make_step
from transformer_core.models.encoders._encoder_decoder import TextToText

_DEFAULT_CAPACITY: Final = 128
_HEAD: Final = "lm_head.out_proj.weight"


@checked_choices
@dataclass(frozen=True, slots=True, kw_only=True)
class T5GemmaConfig:
    """Configuration of a T5Gemma.

    Attributes:
        architecture: architecture of a registered family.
        encoder: configuration of the encoder's layers; a token sees those closer than its window, on both sides.
        decoder: configuration of the decoder's layers.
        tied: whether the decoder's embedding is also the head.
    """

    architecture: str
    encoder: DecoderConfig
    decoder: DecoderConfig
    tied: bool = True

    @property
    def vocabulary(self) -> int:
        """V, of the tokens that the decoder writes."""
        return self.decoder.vocabulary

    @property
    def eos_token_ids(self) -> tuple[int, ...]:
        """Tokens that end a sequence."""
        return self.decoder.eos_token_ids

    @property
    def layers(self) -> int:
        """The greater L of encoder and decoder."""
        return max(self.encoder.layers, self.decoder.layers)

    @property
    def stored_layers(self) -> int:
        """L, as every stored layer is run."""
        return self.layers

    def first_layers(self, count: int) -> Self:
        """Returns the configuration with the first layers only, of both encoder and decoder."""
        parts = (self.encoder, self.decoder)
        encoder, decoder = (part.first_layers(min(count, part.layers)) for part in parts)
        return replace(self, encoder=encoder, decoder=decoder)

    def facts(self) -> dict[str, Any]:
        """Returns the model's entries in the description of a bundle."""
        return {
            **self.decoder.facts(),
            "layers": self.layers,
            "encoder": self.encoder.facts(),
            "decoder_layers": self.decoder.layers,
        }


class T5GemmaEncoder(Module):
    """Encoder: embeddings, Gemma 2's layers in which tokens see later ones, too, and a norm."""

    def __init__(self, config: DecoderConfig, dtype: DType) -> None:
        self.config = config
        self.embed_tokens = TokenEmbedding(config.vocabulary, config.hidden, dtype=dtype)
        self.layers = Repeated(config.layers, lambda index: SandwichLayer(config, index, dtype))
        self.norm = norm(config, dtype)

    def forward(self, ctx: ExecutionContext, token_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """Maps token_ids i32 [B, S'] to states [B, S', D]; attention_mask i32 [B, S'] is 0 where padding."""
        step = self._step(ctx, attention_mask)
        x = ctx.ops.mul(self.embed_tokens(ctx, token_ids), self.config.embedding_scale)
        for layer in self.layers:
            with ctx.block(layer.path):
                x, _ = layer(ctx, x, step)
        return self.norm(ctx, x)

    def _step(self, ctx: ExecutionContext, attention_mask: Tensor) -> StepInputs:
        """Returns the inputs that the layers share: RoPE's tables, and a mask per window."""
        ops, (batch, tokens) = ctx.ops, attention_mask.shape
        real = ops.reshape(ops.not_equal(attention_mask, 0), (batch, 1, tokens))
        distances, biases = token_distances(ctx, tokens), dict[int | None, Tensor | None]()
        for window in dict.fromkeys(self.config.windows):
            near = near_mask(ctx, distances, tokens if window is None else window)
            biases[window] = mask_bias(ctx, ops.logical_and(ops.reshape(near, (1, tokens, tokens)), real))
        positions = ops.iota((tokens,))
        return StepInputs(*rope_tables(ctx, self.config.rope, positions, tokens), positions, biases)


class CrossAttention(Module):
    """Attention to the encoder's states: query heads in groups, capped scores, no RoPE.

    Args:
        config: configuration of the decoder.
        source: D of the encoder.
        dtype: dtype of the parameters.
    """

    def __init__(self, config: DecoderConfig, source: int, dtype: DType) -> None:
        self.config = config
        queries, keys = config.heads * config.head_size, config.kv_heads * config.head_size
        biased = config.qkv_bias
        self.q_proj = Linear(config.hidden, queries, bias=biased, dtype=dtype)
        self.k_proj = Linear(source, keys, bias=biased, dtype=dtype)
        self.v_proj = Linear(source, keys, bias=biased, dtype=dtype)
        self.o_proj = Linear(queries, config.hidden, bias=config.output_bias, dtype=dtype)

    def keys_values(self, ctx: ExecutionContext, states: Tensor) -> KVCache:
        """Computes keys and values [B, K, S', H] of states [B, S', D']."""
        ops, (batch, tokens, _), config = ctx.ops, states.shape, self.config
        shape = (batch, tokens, config.kv_heads, config.head_size)
        key, value = (
            ops.transpose(ops.reshape(part(ctx, states), shape), (0, 2, 1, 3)) for part in (self.k_proj, self.v_proj)
        )
        return KVCache(key, value)

    def forward(self, ctx: ExecutionContext, x: Tensor, memory: KVCache, bias: Tensor) -> Tensor:
        """Attends from x [B, T, D] to ``memory``: [B, T, D]; ``bias`` is f32, broadcast to [B, K, G, T, S']."""
        ops, (batch, tokens, _), config = ctx.ops, x.shape, self.config
        group = config.heads // config.kv_heads
        q = ops.reshape(self.q_proj(ctx, x), (batch, tokens, config.kv_heads, group, config.head_size))
        q = ops.transpose(q, (0, 2, 3, 1, 4))
        heads = grouped_attention(ctx, q, memory.key, memory.value, bias, config.scale, config.softcap)
        heads = ops.reshape(ops.transpose(heads, (0, 3, 1, 2, 4)), (batch, tokens, config.heads * config.head_size))
        return self.o_proj(ctx, heads)


class CrossSandwichLayer(Module):
    """Layer ``x + norm(part(norm(x)))`` of self-attention, attention to the encoder's states and feed-forward."""

    def __init__(self, config: DecoderConfig, index: int, source: int, dtype: DType) -> None:
        self.self_attn = attention(config, index, dtype)
        self.input_layernorm = norm(config, dtype)
        self.post_attention_layernorm = norm(config, dtype)
        self.cross_attn = CrossAttention(config, source, dtype)
        self.pre_cross_attn_layernorm = norm(config, dtype)
        self.post_cross_attn_layernorm = norm(config, dtype)
        self.mlp = feed_forward(config, index, dtype)
        self.pre_feedforward_layernorm = norm(config, dtype)
        self.post_feedforward_layernorm = norm(config, dtype)

    def forward(
        self,
        ctx: ExecutionContext,
        x: Tensor,
        step: StepInputs,
        cache: KVCache | None,
        cross: KVCache,
        cross_bias: Tensor,
    ) -> tuple[Tensor, KVCache | None]:
        """Runs the layer on x [B, T, D]: the same shape, and the updated cache."""
        ops, x = ctx.ops, ctx.tag(x, "input")
        attended, cache = self.self_attn(ctx, self.input_layernorm(ctx, x), step, cache)
        x = ops.add(x, ctx.tag(self.post_attention_layernorm(ctx, attended), "self_attn.output"))
        crossed = self.cross_attn(ctx, self.pre_cross_attn_layernorm(ctx, x), cross, cross_bias)
        x = ops.add(x, ctx.tag(self.post_cross_attn_layernorm(ctx, crossed), "cross_attn.output"))
        forwarded = self.post_feedforward_layernorm(ctx, self.mlp(ctx, self.pre_feedforward_layernorm(ctx, x)))
        return ctx.tag(ops.add(x, ctx.tag(forwarded, "mlp.output")), "output"), cache


class T5GemmaDecoder(Module):
    """Decoder: embeddings, layers that attend to earlier tokens and to the encoder's states, and a norm."""

    def __init__(self, config: DecoderConfig, source: int, dtype: DType) -> None:
        self.config = config
        self.embed_tokens = TokenEmbedding(config.vocabulary, config.hidden, dtype=dtype)
        self.layers = Repeated(config.layers, lambda index: CrossSandwichLayer(config, index, source, dtype))
        self.norm = norm(config, dtype)

    def forward(
        self,
        ctx: ExecutionContext,
        token_ids: Tensor,
        crosses: Sequence[KVCache],
        source_bias: Tensor,
        caches: Sequence[KVCache] | None,
        position: Tensor | None,
    ) -> tuple[Tensor, tuple[KVCache, ...]]:
        """Maps token_ids i32 [B, T] to states [B, T, D], and the updated caches; see ``EncoderDecoder.decoded``."""
        ops, tokens, config = ctx.ops, token_ids.shape[1], self.config
        keys, length = (None, None) if caches is None else (caches[0].capacity, None)
        if position is not None:
            length = ops.add(position, tokens)
        step = make_step(ctx, config.rope, config.windows, tokens, keys=keys, position=position, length=length)
        cross_bias = ops.reshape(source_bias, (source_bias.shape[0], 1, 1, 1, source_bias.shape[1]))
        x = ops.mul(self.embed_tokens(ctx, token_ids), config.embedding_scale)
        updated: list[KVCache] = []
        for index, layer in enumerate(self.layers):
            with ctx.block(layer.path):
                cache = None if caches is None else caches[index]
                x, cache = layer(ctx, x, step, cache, crosses[index], cross_bias)
            if cache is not None:
                updated.append(cache)
        return self.norm(ctx, x), tuple(updated)


class T5GemmaForConditionalGeneration(TextToText[T5GemmaConfig]):
    """T5Gemma: an ``EncoderDecoder`` with the sources ``token_ids`` and ``attention_mask`` i32 [B,S'].

    ``sequence`` is S'. ``prefill`` takes one token, as answers begin with ``bos_token_id`` alone;
    ``forward(token_ids, attention_mask, decoder_token_ids [B,S'])`` gives logits [B,S',V].
    """

    def __init__(self, config: T5GemmaConfig, dtype: DType | str = "f32", num_layers: int | None = None) -> None:
        super().__init__(config, dtype, num_layers)
        encoder, decoder = self.config.encoder, self.config.decoder
        self.encoder = T5GemmaEncoder(encoder, self.dtype)
        self.decoder = T5GemmaDecoder(decoder, encoder.hidden, self.dtype)
        apart = not self.config.tied
        self.lm_head = VocabularyLinear(decoder.hidden, decoder.vocabulary, dtype=self.dtype) if apart else None

    def default_profile(self, batch: int, sequence: int | None, max_sequence: int | None) -> CompileProfile:
        """Returns a profile of the sizes; S' is 64 by default, and S, the capacity of caches, 128."""
        source, answer = self.config.encoder.rope, self.config.decoder.rope
        tokens = min(DEFAULT_SEQUENCE, source.trained_length) if sequence is None else sequence
        capacity = min(_DEFAULT_CAPACITY, answer.trained_length) if max_sequence is None else max_sequence
        check_size("batch", batch)
        why = "the positions that the {}'s RoPE reaches (max_position_embeddings and its scaling)"
        check_size("sequence", tokens, source.reach, why.format("encoder"))
        check_size("max_sequence", capacity, answer.reach, why.format("decoder"))
        return CompileProfile(name="forward", batch=batch, sequence=tokens, max_sequence=capacity, dtype=self.dtype)

    def encoded(self, ctx: ExecutionContext, *sources: Tensor) -> Tensor:
        """Computes the encoder's states [B, S', D]."""
        token_ids, attention_mask = sources
        return self.encoder(ctx, token_ids, attention_mask)

    def crosses(self, ctx: ExecutionContext, states: Tensor) -> tuple[KVCache, ...]:
        """Computes keys and values [B, K, S', H] of the states [B, S', D], of each layer of the decoder."""
        crosses: list[KVCache] = []
        for layer in self.decoder.layers:
            assert isinstance(layer, CrossSandwichLayer)
            crosses.append(layer.cross_attn.keys_values(ctx, states))
        return tuple(crosses)

    def decoded(
        self,
        ctx: ExecutionContext,
        token_ids: Tensor,
        crosses: Sequence[KVCache],
        source_bias: Tensor | None,
        caches: Sequence[KVCache] | None = None,
        position: Tensor | None = None,
    ) -> tuple[Tensor, tuple[KVCache, ...]]:
        """Runs the decoder on token_ids i32 [B, T]: normed states [B, T, D], and the updated caches."""
        assert source_bias is not None  # encode gives it
        return self.decoder(ctx, token_ids, crosses, source_bias, caches, position)

    def logits(self, ctx: ExecutionContext, x: Tensor) -> Tensor:
        """Maps x [.., D] to logits f32 [.., V]."""
        head = self.decoder.embed_tokens if self.lm_head is None else self.lm_head
        return logits_of(ctx, x, head.weight, softcap=self.config.decoder.logits_softcap)

    def tied(self) -> dict[str, str]:
        """Returns the head's name, if it is the decoder's embedding."""
        return {_HEAD: self.decoder.embed_tokens.weight.path} if self.config.tied else {}


_KEYS: Final = RenamedModules(
    {
        "lm_head": "lm_head.out_proj",
        **{
            f"{part}.layers.{{}}.{ours}": f"{part}.layers.{{}}.{stored}"
            for part in ("encoder", "decoder")
            for ours, stored in (
                ("input_layernorm", "pre_self_attn_layernorm"),
                ("post_attention_layernorm", "post_self_attn_layernorm"),
            )
        },
    },
    above=("model.",),
)
# transformers' values of fields that an encoder's or a decoder's object lacks.
_DEFAULTS: Final[Mapping[str, Any]] = {
    "vocab_size": 256000,
    "hidden_size": 2304,
    "intermediate_size": 9216,
    "num_hidden_layers": 26,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 256,
    "max_position_embeddings": 8192,
    "rms_norm_eps": 1e-6,
    "eos_token_id": 1,
    "bos_token_id": 2,
}


def _part(fields: ConfigFields, name: str) -> DecoderConfig:
    """Reads the object of the encoder or of the decoder."""
    inner = fields.object(name)
    stated = {key: value for key, value in inner.values.items() if value is not None or key not in _DEFAULTS}
    config = family_named("Gemma2ForCausalLM").read(ConfigFields({**_DEFAULTS, **stated}, inner.where))
    if not isinstance(config, DecoderConfig):
        raise ConfigError(f"{inner.where}: expected a decoder's fields")
    return config


def _read(fields: ConfigFields) -> T5GemmaConfig:
    return T5GemmaConfig(
        architecture=T5GEMMA.architecture,
        encoder=_part(fields, "encoder"),
        decoder=_part(fields, "decoder"),
        tied=fields.boolean("tie_word_embeddings", True),
    )


T5GEMMA: Final = ModelFamily(
    "T5GemmaForConditionalGeneration",
    "t5gemma",
    _read,
    T5GemmaForConditionalGeneration,
    lambda config: _KEYS,
    "model.*coder.layers.{}",
)
