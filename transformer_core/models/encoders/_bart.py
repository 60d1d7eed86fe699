"""BART (Lewis et al. 2019, arXiv:1910.13461) and its group: text to text, with absolute positions."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from lang_core import DType, ExecutionContext, Module, Parameter, Repeated, Tensor, TensorSpec, WeightSource
from transformer_core.checkpoints import Computed, Recipe, RenamedModules, Reshaped
from transformer_core.family._model import ModelFamily, check_size
from transformer_core.flow import CompileProfile
from transformer_core.layers._embedding import Embedding, TokenEmbedding, sinusoids
from transformer_core.layers._kv_cache import KVCache
from transformer_core.layers._linear import VocabularyLinear
from transformer_core.layers._logits import logits_of
from transformer_core.layers._masks import causal_mask, mask_bias, padding_bias
from transformer_core.models.encoders._bart_config import BartConfig, BartKind, PositionKind, read_bart
from transformer_core.models.encoders._cross_layer import CrossLayer, cross_keys_values
from transformer_core.models.encoders._encoder_decoder import TextToText
from transformer_core.models.encoders._stack import EncoderStack, StackConfig, layer_norm
from transformer_core.models.encoders._whisper import layer_names

_DEFAULT_TOKENS: Final = 128
"""Tokens of the source, and of an answer, where the caller does not say."""
_HEAD: Final = "lm_head.weight"
_BASE: Final = 10_000.0


def _tables(config: BartConfig) -> tuple[str, str]:
    """Returns the stored names of the embeddings of encoder and decoder."""
    prefix = config.kind.prefix
    return f"{prefix}.encoder.embed_tokens.weight", f"{prefix}.decoder.embed_tokens.weight"


class BartEmbedding(Module):
    """Embeddings of tokens and positions of one side, scaled and normed as the family does it."""

    def __init__(self, config: BartConfig, dtype: DType, *, own: bool, source: bool) -> None:
        kind, hidden = config.kind, config.stack.hidden
        vocabulary = config.source_vocabulary if source else config.vocabulary
        positions = config.source_positions if source else config.positions
        self.embed_tokens = TokenEmbedding(vocabulary, hidden, dtype=dtype) if own else None
        self.embed_positions = None
        if positions is not None:
            rows = positions + kind.offset
            self.embed_positions = Embedding(rows, hidden, dtype=dtype, packable=False)
        self.norm = layer_norm(config.stack, dtype) if kind.embedding_norm else None
        self._norms_tokens = kind.norms_tokens and not source
        self._first, self._scale = kind.offset, config.scale

    def forward(
        self,
        ctx: ExecutionContext,
        token_ids: Tensor,
        shared: TokenEmbedding | None,
        position: Tensor | None = None,
    ) -> Tensor:
        """Embeds token_ids i32 [B, T] as [B, T, D].

        Args:
            ctx: context that computes.
            token_ids: i32 [B, T].
            shared: table of both sides, for a side without a table of its own.
            position: rank-0 i32, number of tokens before these; None for none.
        """
        ops = ctx.ops
        table = self.embed_tokens or shared
        assert table is not None  # a side without a table of its own has the shared one
        x = table(ctx, token_ids)
        if self._scale != 1.0:
            x = ops.mul(x, self._scale)
        if self.norm is not None and self._norms_tokens:
            return ops.add(self.norm(ctx, x), self._positions(ctx, token_ids, position, x))
        x = ops.add(x, self._positions(ctx, token_ids, position, x))
        return x if self.norm is None else self.norm(ctx, x)

    def _positions(self, ctx: ExecutionContext, token_ids: Tensor, position: Tensor | None, x: Tensor) -> Tensor:
        ops = ctx.ops
        if self.embed_positions is not None:
            places = ops.iota((token_ids.shape[1],))
            places = places if position is None else ops.add(places, position)
            return self.embed_positions(ctx, ops.add(places, self._first) if self._first else places)
        written = ops.cast(ops.not_equal(token_ids, self._first - 1), "i32")  # padding has no place
        counted = ops.cumsum(written, 1)
        counted = counted if position is None else ops.add(counted, position)
        sines = sinusoids(ctx, ops.sub(counted, 1), self._first, TensorSpec(x.shape, x.dtype))
        return ops.mul(sines, ops.cast(ops.reshape(written, (*token_ids.shape, 1)), x.dtype))


def _last_norm(stack: StackConfig, dtype: DType) -> Module | None:
    return None if stack.post_norm else layer_norm(stack, dtype)


class BartEncoder(Module):
    """Encoder: embeddings, the layers, and a norm if the layers begin with theirs."""

    def __init__(self, config: BartConfig, dtype: DType, *, own: bool) -> None:
        self.embedding = BartEmbedding(config, dtype, own=own, source=True)
        self.stack = EncoderStack(config.stack, dtype)
        self.norm = _last_norm(config.stack, dtype)
        self._windows = config.windows

    def forward(
        self, ctx: ExecutionContext, token_ids: Tensor, attention_mask: Tensor, shared: TokenEmbedding | None
    ) -> Tensor:
        """Maps token_ids i32 [B, S'] to states [B, S', D]; attention_mask i32 [B, S'] is 0 where padding."""
        x = self.embedding(ctx, token_ids, shared)
        windows = self._windows
        hidden = padding_bias(ctx, attention_mask) if windows is None else windows.biases(ctx, attention_mask, None)
        x = self.stack(ctx, x, hidden)
        return x if self.norm is None else self.norm(ctx, x)


class BartDecoder(Module):
    """Decoder: embeddings, layers that attend to earlier tokens and to the encoder's states, and a norm as above."""

    def __init__(self, config: BartConfig, dtype: DType, *, own: bool) -> None:
        self.embedding = BartEmbedding(config, dtype, own=own, source=False)
        self.layers = Repeated(config.decoder.layers, lambda index: CrossLayer(config.decoder, dtype))
        self.norm = _last_norm(config.decoder, dtype)

    def forward(
        self,
        ctx: ExecutionContext,
        token_ids: Tensor,
        shared: TokenEmbedding | None,
        crosses: Sequence[KVCache],
        source_bias: Tensor,
        caches: Sequence[KVCache] | None = None,
        position: Tensor | None = None,
    ) -> tuple[Tensor, tuple[KVCache, ...]]:
        """Maps token_ids i32 [B, T] to states [B, T, D], and the updated caches; see ``EncoderDecoder.decoded``."""
        ops, tokens = ctx.ops, token_ids.shape[1]
        x = self.embedding(ctx, token_ids, shared, position)
        keys = tokens if caches is None else caches[0].capacity
        bias = mask_bias(ctx, causal_mask(ctx, tokens, keys, position=position))
        cross_bias = ops.reshape(source_bias, (source_bias.shape[0], 1, 1, 1, source_bias.shape[1]))
        updated: list[KVCache] = []
        for index, layer in enumerate(self.layers):
            with ctx.block(layer.path):
                cache = None if caches is None else caches[index]
                x, cache = layer(ctx, x, crosses[index], bias, cache, position, cross_bias)
            updated.append(cache)
        return x if self.norm is None else self.norm(ctx, x), tuple(updated)


class BartForConditionalGeneration(TextToText[BartConfig]):
    """BART and its group: an ``EncoderDecoder`` with the sources ``token_ids`` and ``attention_mask`` i32 [B,S'].

    ``sequence`` is S'. ``prefill`` takes one token, as most answers begin with ``decoder_start_token_id`` alone;
    ``forward(token_ids, attention_mask, decoder_token_ids [B,S'])`` gives logits [B,S',V]; if the decoder has fewer
    positions than S' (LED), its tokens are as many as those.
    """

    def __init__(self, config: BartConfig, dtype: DType | str = "f32", num_layers: int | None = None) -> None:
        super().__init__(config, dtype, num_layers)
        config, hidden = self.config, self.config.stack.hidden
        own = [not config.shared or table in config.untied for table in _tables(config)]
        self.shared = None
        if config.shared:
            self.shared = TokenEmbedding(config.source_vocabulary, hidden, dtype=self.dtype)
        self.encoder = BartEncoder(config, self.dtype, own=own[0])
        self.decoder = BartDecoder(config, self.dtype, own=own[1])
        apart = not config.tied or _HEAD in config.untied
        self.lm_head = VocabularyLinear(hidden, config.vocabulary, dtype=self.dtype) if apart else None
        self.final_logits_bias = Parameter((config.vocabulary,), self.dtype) if config.kind.logits_bias else None

    def default_profile(self, batch: int, sequence: int | None, max_sequence: int | None) -> CompileProfile:
        """Returns a profile of the sizes; S' and S, the capacity of caches, are 128 by default, or all positions."""
        check_size("batch", batch)
        tokens = self._size("sequence", sequence, self.config.source_positions, "encoder")
        capacity = self._size("max_sequence", max_sequence, self.config.positions, "decoder")
        return CompileProfile(name="forward", batch=batch, sequence=tokens, max_sequence=capacity, dtype=self.dtype)

    def _size(self, name: str, size: int | None, limit: int | None, part: str) -> int:
        """Checks a size of a profile; its default is 128, or all positions."""
        if limit is None:
            check_size(name, _DEFAULT_TOKENS if size is None else size)
            return _DEFAULT_TOKENS if size is None else size
        size = min(limit, _DEFAULT_TOKENS) if size is None else size
        field = f"max_{part}_position_embeddings" if self.config.kind.windowed else "max_position_embeddings"
        check_size(name, size, limit, f"the positions that have embeddings ({field})")
        return size

    def target_tokens(self, profile: CompileProfile) -> tuple[str, int]:
        """Returns name and T of the decoder's tokens in ``forward``."""
        return "decoder_token_ids", min(profile.sequence, self.config.positions or profile.sequence)

    def encoded(self, ctx: ExecutionContext, *sources: Tensor) -> Tensor:
        """Computes the encoder's states [B, S', D]."""
        token_ids, attention_mask = sources
        return self.encoder(ctx, token_ids, attention_mask, self.shared)

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
        """Runs the decoder on token_ids i32 [B, T]: states [B, T, D], and the updated caches."""
        assert source_bias is not None  # encode gives it
        return self.decoder(ctx, token_ids, self.shared, crosses, source_bias, caches, position)

    def logits(self, ctx: ExecutionContext, x: Tensor) -> Tensor:
        """Maps x [.., D] to logits f32 [.., V]."""
        head = self.lm_head or self._table
        return logits_of(ctx, x, head.weight, self.final_logits_bias)

    @property
    def _table(self) -> TokenEmbedding:
        """The table of the tokens that the decoder writes; a tied head is the shared one if there is one."""
        table = self.shared or self.decoder.embedding.embed_tokens
        assert table is not None
        return table

    def tied(self) -> dict[str, str]:
        """Returns names of the embedding, which some checkpoints store several times."""
        names = (*(_tables(self.config) if self.config.shared else ()), *((_HEAD,) if self.config.tied else ()))
        return {name: self._table.weight.path for name in names if name not in self.config.untied}

    def untied(self) -> dict[str, str]:
        """Returns the tables that the checkpoint stores beside the embedding, with values of their own."""
        parts = ("encoder", "decoder")
        paths = {
            stored: f"{part}.embedding.embed_tokens.weight"
            for part, stored in zip(parts, _tables(self.config), strict=True)
        }
        return {paths.get(name, name): name for name in self.config.untied}


def static_positions(count: int, size: int) -> np.ndarray:
    """Returns the positions f32 [count, size] of Pegasus and Marian: sines, then cosines, of falling frequencies.

    >>> static_positions(1, 4).tolist()
    [[0.0, 0.0, 1.0, 1.0]]
    """
    columns = np.arange(size)
    angles = np.arange(count)[:, None] / np.power(_BASE, 2 * (columns // 2) / size)
    return np.concatenate([np.sin(angles[:, 0::2]), np.cos(angles[:, 1::2])], 1).astype(np.float32)


def _side(prefix: str, name: str) -> dict[str, str]:
    ours, stored = f"{name}.layers.{{}}" if name == "decoder" else f"{name}.stack.layers.{{}}", f"{prefix}.{name}"
    return {
        **layer_names(ours, f"{stored}.layers.{{}}"),
        f"{name}.embedding.embed_tokens": f"{stored}.embed_tokens",
        f"{name}.embedding.embed_positions": f"{stored}.embed_positions",
        f"{name}.embedding.norm": f"{stored}.layernorm_embedding",
        f"{name}.norm": f"{stored}.layer_norm",
    }


def _keys(kind: BartKind) -> RenamedModules:
    prefix, attention = kind.prefix, "encoder.stack.layers.{}.self_attn"
    cross, near = f"{prefix}.decoder.layers.{{}}.encoder_attn", f"{prefix}.encoder.layers.{{}}.self_attn"
    windowed = {
        f"{attention}.o_proj": f"{near}.output",
        **{f"{attention}.{part[0]}_proj": f"{near}.longformer_self_attn.{part}" for part in ("query", "key", "value")},
    }
    return RenamedModules(
        {
            "shared": f"{prefix}.shared",
            **_side(prefix, "encoder"),
            **_side(prefix, "decoder"),
            **{f"decoder.layers.{{}}.cross_attn.{part}_proj": f"{cross}.{part}_proj" for part in "qkv"},
            "decoder.layers.{}.cross_attn.o_proj": f"{cross}.out_proj",
            "decoder.layers.{}.cross_norm": f"{cross}_layer_norm",
            **(windowed if kind.windowed else {}),
        }
    )


class _Stored:
    """Recipes of the group's parameters.

    As in transformers, a bias of the logits that is not stored is 0, static positions that are not stored are computed,
    and a head that is not stored is the embedding.
    """

    def __init__(self, config: BartConfig) -> None:
        self._config: Final = config
        self._keys: Final = _keys(config.kind)

    def __call__(self, name: str, shape: tuple[int, ...], source: WeightSource) -> Recipe | None:
        """Returns the recipe of a parameter."""
        config, key = self._config, self._keys.key(name, source)
        table = f"{config.kind.prefix}.shared.weight" if config.shared else _tables(config)[1]
        whole = (config.vocabulary, config.stack.hidden)
        absent = source.has(table) and not source.has(key)
        if name == _HEAD and absent:
            ours = "shared.weight" if config.shared else "decoder.embedding.embed_tokens.weight"
            return self._keys(ours, shape, source)
        if name == "final_logits_bias":
            if absent:
                return Computed(table, whole, lambda start, stop: np.zeros(stop - start, np.float32))
            return Reshaped(name, (1, *shape), shape)
        if name.endswith("embed_positions.weight") and absent and config.kind.positions is PositionKind.STATIC:
            return Computed(table, whole, lambda start, stop: static_positions(stop, shape[1])[start:])
        return self._keys(name, shape, source)


_OLD: Final = ("model.*coder.version", "model.*coder.embed_positions.weights")
# Without tokens that attend to all others, these projections are not read.
_GLOBAL: Final = ("*_global.weight", "*_global.bias")


def bart_family(
    architecture: str, model_type: str, kind: BartKind, defaults: Mapping[str, Any]
) -> ModelFamily[BartConfig]:
    """Returns a family of BART's group.

    Args:
        architecture: its architecture.
        model_type: its model type.
        kind: its differences.
        defaults: transformers' values of fields that a config.json may lack.
    """
    return ModelFamily(
        architecture,
        model_type,
        lambda fields: read_bart(fields, architecture, kind, defaults),
        BartForConditionalGeneration,
        _Stored,
        f"{kind.prefix}.*coder.layers.{{}}",
        _GLOBAL if kind.windowed else _OLD,
    )


def sizes(
    vocabulary: int, positions: int, hidden: int, layers: tuple[int, int], heads: int, inner: int
) -> dict[str, int]:
    """Returns transformers' defaults of a family's sizes; ``layers`` are the encoder's and the decoder's."""
    parts: dict[str, int] = {}
    for part, count in zip(("encoder", "decoder"), layers, strict=True):
        parts |= {f"{part}_layers": count, f"{part}_attention_heads": heads, f"{part}_ffn_dim": inner}
    return {"vocab_size": vocabulary, "max_position_embeddings": positions, "d_model": hidden, **parts}
