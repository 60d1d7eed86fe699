"""T5 (Raffel et al. 2020, arXiv:1910.10683): text to text, with biases of scores by distance."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

from lang_core import (
    DType,
    EntryPoint,
    ExecutionContext,
    Module,
    Repeated,
    Tensor,
    TensorSpec,
    WeightSource,
    f32,
)
from transformer_core._config_fields import ConfigFields
from transformer_core.checkpoints import Recipe, RenamedModules, Stored
from transformer_core.family._model import DEFAULT_SEQUENCE, Model, ModelFamily, buckets, check_size
from transformer_core.family._packed_texts import PackedTexts, is_packed, packed_sizes
from transformer_core.family._sentence import Pooling
from transformer_core.flow import CompileProfile
from transformer_core.layers._embedding import TokenEmbedding
from transformer_core.layers._kv_cache import KVCache
from transformer_core.layers._linear import VocabularyLinear
from transformer_core.layers._logits import logits_of
from transformer_core.layers._masks import causal_mask, mask_bias, padding_bias, token_distances
from transformer_core.layers._relative_bias import RelativeBias
from transformer_core.models.encoders._cross_layer import CrossLayer, cross_keys_values
from transformer_core.models.encoders._encoder_decoder import TextToText
from transformer_core.models.encoders._sentence_head import (
    DENSE_NAMES,
    SentenceHead,
    check_vectors,
    packed_entry_point,
    pooling_inputs,
    text_entry_point,
)
from transformer_core.models.encoders._stack import EncoderStack, encoder_profile, layer_norm
from transformer_core.models.encoders._t5_config import T5Config, read_multilingual, read_t5

_DEFAULT_CAPACITY: Final = 128
_LONGEST_SOURCE: Final = 512  # no positions bound a text
"""Tokens of an answer that caches hold where the caller does not say."""
_TABLES: Final = ("encoder.embed_tokens.weight", "decoder.embed_tokens.weight")  # in the order of transformers
_HEAD: Final = "lm_head.weight"


def _own_embedding(config: T5Config, part: str, dtype: DType) -> TokenEmbedding | None:
    """Returns the table of a part of the model if it is not the shared one."""
    if f"{part}.embed_tokens.weight" not in config.untied:
        return None
    return TokenEmbedding(config.vocabulary, config.stack.hidden, dtype=dtype)


def _relative_bias(config: T5Config, dtype: DType, *, causal: bool) -> RelativeBias:
    heads, buckets = config.stack.heads, config.buckets
    return RelativeBias(buckets, heads, buckets=buckets, longest=config.longest, causal=causal, dtype=dtype)


class RelativeBiases(Module):
    """Biases by distance of the layers of a side: one table for all, or one for each."""

    def __init__(self, config: T5Config, layers: int, dtype: DType, *, causal: bool) -> None:
        one, apart = _relative_bias, config.apart
        self.shared = None if apart else one(config, dtype, causal=causal)
        self.layers = Repeated(layers if apart else 0, lambda index: one(config, dtype, causal=causal))

    def of_layers(self, layers: int, bias: Callable[[RelativeBias], Tensor]) -> list[Tensor]:
        """Returns the bias of each layer, as ``bias`` computes it of a table."""
        if self.shared is not None:
            return [bias(self.shared)] * layers
        tables: Any = self.layers
        return [bias(table) for table in tables]


class T5Encoder(Module):
    """Encoder: layers with a bias by distance, and a norm."""

    def __init__(self, config: T5Config, dtype: DType) -> None:
        self.embed_tokens = _own_embedding(config, "encoder", dtype)
        self.relative = RelativeBiases(config, config.stack.layers, dtype, causal=False)
        self.stack = EncoderStack(config.stack, dtype)
        self._layers = config.stack.layers
        self.norm = layer_norm(config.stack, dtype)

    def forward(self, ctx: ExecutionContext, x: Tensor, attention_mask: Tensor) -> Tensor:
        """Maps x [B, S', D] to normed states; attention_mask i32 [B, S'] is 0 where padding."""
        return self.states(ctx, x, padding_bias(ctx, attention_mask))

    def states(self, ctx: ExecutionContext, x: Tensor, hidden: Tensor, texts: PackedTexts | None = None) -> Tensor:
        """Maps x [B, S', D] to normed states; ``hidden`` is the bias of hidden keys, ``texts`` as of the stack."""
        distances = token_distances(ctx, x.shape[1]) if texts is None else texts.distances(ctx)
        biases = self.relative.of_layers(
            self._layers, lambda table: ctx.ops.add(table.between(ctx, distances, x.shape[1]), hidden)
        )
        return self.norm(ctx, self.stack(ctx, x, biases, texts))


class T5Decoder(Module):
    """Decoder: layers that attend to earlier tokens, with a bias by distance, and to the encoder's states; a norm."""

    def __init__(self, config: T5Config, dtype: DType) -> None:
        self.embed_tokens = _own_embedding(config, "decoder", dtype)
        self.relative = RelativeBiases(config, config.decoder.layers, dtype, causal=True)
        self.layers = Repeated(config.decoder.layers, lambda index: CrossLayer(config.decoder, dtype))
        self._layers = config.decoder.layers
        self.norm = layer_norm(config.decoder, dtype)

    def forward(
        self,
        ctx: ExecutionContext,
        x: Tensor,
        crosses: Sequence[KVCache],
        source_bias: Tensor,
        caches: Sequence[KVCache] | None = None,
        position: Tensor | None = None,
    ) -> tuple[Tensor, tuple[KVCache, ...]]:
        """Maps x [B, T, D] to normed states, and the updated caches; arguments as of ``EncoderDecoder.decoded``."""
        ops, tokens = ctx.ops, x.shape[1]
        keys = tokens if caches is None else caches[0].capacity
        seen = mask_bias(ctx, causal_mask(ctx, tokens, keys, position=position))
        biases = self.relative.of_layers(self._layers, lambda table: ops.add(table(ctx, tokens, keys, position), seen))
        cross_bias = ops.reshape(source_bias, (source_bias.shape[0], 1, 1, 1, source_bias.shape[1]))
        updated: list[KVCache] = []
        for index, layer in enumerate(self.layers):
            with ctx.block(layer.path):
                cache = None if caches is None else caches[index]
                x, cache = layer(ctx, x, crosses[index], biases[index], cache, position, cross_bias)
            updated.append(cache)
        return self.norm(ctx, x), tuple(updated)


class T5ForConditionalGeneration(TextToText[T5Config]):
    """T5: an ``EncoderDecoder`` with the sources ``token_ids`` and ``attention_mask`` i32 [B,S'].

    ``sequence`` is S'. ``prefill`` takes one token, as most answers begin with ``decoder_start_token_id`` alone;
    ``forward(token_ids, attention_mask, decoder_token_ids [B,S'])`` gives logits [B,S',V].
    """

    def __init__(self, config: T5Config, dtype: DType | str = "f32", num_layers: int | None = None) -> None:
        super().__init__(config, dtype, num_layers)
        config, hidden = self.config, self.config.stack.hidden
        self.shared = TokenEmbedding(config.vocabulary, hidden, dtype=self.dtype)
        self.encoder = T5Encoder(config, self.dtype)
        self.decoder = T5Decoder(config, self.dtype)
        shared = config.tied and _HEAD not in config.untied
        self.lm_head = None if shared else VocabularyLinear(hidden, config.vocabulary, dtype=self.dtype)

    def default_profile(self, batch: int, sequence: int | None, max_sequence: int | None) -> CompileProfile:
        """Returns a profile of the sizes; S' is 64 by default, and S, the capacity of caches, 128."""
        tokens = DEFAULT_SEQUENCE if sequence is None else sequence
        capacity = _DEFAULT_CAPACITY if max_sequence is None else max_sequence
        for name, size in (("batch", batch), ("sequence", tokens), ("max_sequence", capacity)):
            check_size(name, size)
        return CompileProfile(name="forward", batch=batch, sequence=tokens, max_sequence=capacity, dtype=self.dtype)

    def encoded(self, ctx: ExecutionContext, *sources: Tensor) -> Tensor:
        """Computes the encoder's states [B, S', D]."""
        token_ids, attention_mask = sources
        return self.encoder(ctx, (self.encoder.embed_tokens or self.shared)(ctx, token_ids), attention_mask)

    def crosses(self, ctx: ExecutionContext, states: Tensor) -> tuple[KVCache, ...]:
        """Computes keys and values [B, K, S', H] of the states [B, S', D], of each layer of the decoder."""
        return cross_keys_values(ctx, self.decoder.layers, states)

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
        embedding = self.decoder.embed_tokens or self.shared
        return self.decoder(ctx, embedding(ctx, token_ids), crosses, source_bias, caches, position)

    def logits(self, ctx: ExecutionContext, x: Tensor) -> Tensor:
        """Maps x [.., D] to logits f32 [.., V]."""
        scaled = ctx.ops.mul(x, self.config.stack.hidden**-0.5) if self.config.tied and self.config.scaled else x
        return logits_of(ctx, scaled, self.shared.weight if self.lm_head is None else self.lm_head.weight)

    def tied(self) -> dict[str, str]:
        """Returns names of the embedding, which some checkpoints store several times."""
        names = (*_TABLES, *((_HEAD,) if self.config.tied else ()))
        return {name: self.shared.weight.path for name in names if name not in self.config.untied}

    def untied(self) -> dict[str, str]:
        """Returns the tables that the checkpoint stores beside the embedding, with values of their own."""
        return {name: name for name in self.config.untied}


class T5EncoderModel(Model[T5Config]):
    """T5's encoder alone.

    ``forward(token_ids [B,T], attention_mask [B,T])``, both i32, gives ``last_hidden_state`` [B,T,D], and a model of
    sentence-transformers ``sentence_embedding`` [B,D']. Results are f32.
    """

    def __init__(self, config: T5Config, dtype: DType | str = "f32", num_layers: int | None = None) -> None:
        super().__init__(config, dtype, num_layers)
        pooling = self.config.pooling
        self.shared = TokenEmbedding(self.config.vocabulary, self.config.stack.hidden, dtype=self.dtype)
        self.encoder = T5Encoder(self.config, self.dtype)
        self.sentence = None if pooling is None else SentenceHead(pooling, self.dtype)

    def results(
        self,
        ctx: ExecutionContext,
        token_ids: Tensor,
        attention_mask: Tensor,
        pooling_mask: Tensor | None = None,
    ) -> Mapping[str, Tensor]:
        """Computes the results of ``forward`` of two i32 [B, T]: f32 [B, T, D], and [B, D] of sentences."""
        x = self.encoder(ctx, (self.encoder.embed_tokens or self.shared)(ctx, token_ids), attention_mask)
        results = {"last_hidden_state": ctx.ops.cast(x, f32)}
        if self.sentence is not None:
            results[self.sentence.pooling.result] = self.sentence(ctx, x, attention_mask, pooling_mask)
        return results

    def packed_results(self, ctx: ExecutionContext, texts: PackedTexts) -> Mapping[str, Tensor]:
        """Computes the result f32 [R, D'] of each text of a row of packed texts."""
        x = (self.encoder.embed_tokens or self.shared)(ctx, texts.token_ids)
        x = texts.states(ctx, self.encoder.states(ctx, x, texts.bias(ctx), texts))
        assert self.sentence is not None  # others have no entry point of packed texts
        return {"sentence_embedding": self.sentence.packed(ctx, x, texts)}

    def packed_lengths(self, longest: int) -> tuple[int, ...]:
        """Returns the T of the entry points of packed texts; see ``Model.packed_lengths``."""
        pooling = self.config.pooling
        return () if pooling is not None and pooling.of_tokens else packed_sizes(longest, ())

    def text_lengths(self, limit: int | None) -> tuple[int, ...]:
        """Returns the T of ``forward`` that an export has by default; see ``Model.text_lengths``."""
        if self.sentence is None:
            return ()
        return buckets(_LONGEST_SOURCE if limit is None else limit, self.config.stack.heads)

    def default_profile(self, batch: int, sequence: int | None, max_sequence: int | None) -> CompileProfile:
        """Returns a profile of the sizes; T is 64 by default."""
        tokens = DEFAULT_SEQUENCE if sequence is None else sequence
        check_size("batch", batch)
        check_size("sequence", tokens)
        return encoder_profile(batch, tokens, self.dtype)

    def entry_point(self, profile: CompileProfile) -> EntryPoint:
        """Builds ``forward``."""
        spec = TensorSpec((profile.batch, profile.sequence), "i32")
        inputs = ("token_ids", "attention_mask", *pooling_inputs(self.config.pooling))
        if is_packed(profile.name):
            return packed_entry_point(profile.name, self.packed_results, spec, inputs)
        return text_entry_point(profile.name, self.results, spec, inputs)

    def tied(self) -> dict[str, str]:
        """Returns the embedding's name in the encoder, under which some checkpoints store it once more."""
        return {name: self.shared.weight.path for name in _TABLES[:1] if name not in self.config.untied}

    def untied(self) -> dict[str, str]:
        """Returns the encoder's table if the checkpoint stores it with values of its own."""
        return {name: name for name in self.config.untied}


def _attention_names(ours: str, stored: str) -> dict[str, str]:
    return {f"{ours}.{part}_proj": f"{stored}.{part}" for part in "qkvo"}


def _mlp_names(ours: str, stored: str, *, gated: bool) -> dict[str, str]:
    kinds = {"gate_proj": "wi_0", "up_proj": "wi_1"} if gated else {"up_proj": "wi"}
    return {f"{ours}.{part}": f"{stored}.DenseReluDense.{name}" for part, name in {**kinds, "down_proj": "wo"}.items()}


def _keys(config: T5Config) -> RenamedModules:
    encoder, decoder = "encoder.block.{}.layer", "decoder.block.{}.layer"
    table = "block.{}.layer.0.SelfAttention.relative_attention_bias"
    ours, gated = "encoder.stack.layers.{}", config.stack.gated_mlp
    return RenamedModules(
        {
            **DENSE_NAMES,
            **{f"{part}.relative.shared": f"{part}.{table.format(0)}" for part in ("encoder", "decoder")},
            **{f"{part}.relative.layers.{{}}": f"{part}.{table}" for part in ("encoder", "decoder")},
            "encoder.norm": "encoder.final_layer_norm",
            "decoder.norm": "decoder.final_layer_norm",
            **_attention_names(f"{ours}.self_attn", f"{encoder}.0.SelfAttention"),
            f"{ours}.attention_norm": f"{encoder}.0.layer_norm",
            **_mlp_names(f"{ours}.mlp", f"{encoder}.1", gated=gated),
            f"{ours}.mlp_norm": f"{encoder}.1.layer_norm",
            **_attention_names("decoder.layers.{}.self_attn", f"{decoder}.0.SelfAttention"),
            "decoder.layers.{}.attention_norm": f"{decoder}.0.layer_norm",
            **_attention_names("decoder.layers.{}.cross_attn", f"{decoder}.1.EncDecAttention"),
            "decoder.layers.{}.cross_norm": f"{decoder}.1.layer_norm",
            **_mlp_names("decoder.layers.{}.mlp", f"{decoder}.2", gated=gated),
            "decoder.layers.{}.mlp_norm": f"{decoder}.2.layer_norm",
        }
    )


class _Stored:
    """Recipes of a T5's parameters; a head that is not stored is the embedding."""

    def __init__(self, config: T5Config) -> None:
        self._keys: Final = _keys(config)

    def __call__(self, name: str, shape: tuple[int, ...], source: WeightSource) -> Recipe | None:
        """Returns the recipe of a parameter."""
        if name == "lm_head.weight" and not source.has(name):
            return Stored("shared.weight", shape)
        return self._keys(name, shape, source)


def _with_pooling(config: T5Config, pooling: Pooling) -> T5Config:
    check_vectors(pooling, config.stack.hidden)
    return replace(config, pooling=pooling)


_OLD: Final = ("decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight",)


def _family(
    architecture: str,
    model_type: str,
    read: Callable[[ConfigFields, str], T5Config],
) -> ModelFamily[T5Config]:
    return ModelFamily(
        architecture,
        model_type,
        lambda fields: read(fields, architecture),
        T5ForConditionalGeneration,
        _Stored,
        "*coder.block.{}",
        _OLD,
    )


def _encoder_family(
    architecture: str,
    model_type: str,
    read: Callable[[ConfigFields, str], T5Config],
) -> ModelFamily[T5Config]:
    def read_encoder(fields: ConfigFields) -> T5Config:
        config = read(fields, architecture)
        return replace(config, decoder=config.stack)

    return ModelFamily(
        architecture,
        model_type,
        read_encoder,
        T5EncoderModel,
        _Stored,
        "*coder.block.{}",
        (*_OLD, "decoder.*", "lm_head.*"),
        _with_pooling,
    )


_read_mt5: Final = partial(read_multilingual, apart=False)
_read_umt5: Final = partial(read_multilingual, apart=True)
T5: Final = _family("T5ForConditionalGeneration", "t5", read_t5)
T5_ENCODER: Final = _encoder_family("T5EncoderModel", "t5", read_t5)
MULTILINGUAL_T5: Final = (
    _family("MT5ForConditionalGeneration", "mt5", _read_mt5),
    _encoder_family("MT5EncoderModel", "mt5", _read_mt5),
    _family("UMT5ForConditionalGeneration", "umt5", _read_umt5),
    _encoder_family("UMT5EncoderModel", "umt5", _read_umt5),
)
"""Families of mT5 (Xue et al. 2021, arXiv:2010.11934) and UMT5 (Chung et al. 2023, arXiv:2304.09151)."""
