"""Decoders that encode texts: sentence embedders, classifiers and rerankers (Qwen3, EmbeddingGemma)."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from lang_core import (
    DType,
    EntryPoint,
    ExecutionContext,
    Repeated,
    Tensor,
    TensorSpec,
    checked_choices,
    f32,
)
from transformer_core.family._config import DecoderConfig, family_of
from transformer_core.family._layer import norm
from transformer_core.family._model import DEFAULT_SEQUENCE, Model, buckets, check_size
from transformer_core.family._packed_texts import PackedTexts, is_packed, packed_sizes
from transformer_core.family._sentence import Pooling, ScoreTokens, first_places, last_places, states_at
from transformer_core.family._whole_rows import in_whole_rows
from transformer_core.flow import CompileProfile
from transformer_core.layers._embedding import TokenEmbedding
from transformer_core.layers._linear import Linear
from transformer_core.layers._masks import mask_bias, near_mask, token_distances
from transformer_core.layers._rope import rope_tables
from transformer_core.layers._step import StepInputs
from transformer_core.models.encoders._sentence_head import (
    SentenceHead,
    packed_entry_point,
    pooling_inputs,
    text_entry_point,
)
from transformer_core.models.encoders._stack import encoder_profile


@checked_choices
@dataclass(frozen=True, slots=True, kw_only=True)
class DecoderEncoderConfig:
    """Configuration of a decoder that encodes texts.

    Attributes:
        architecture: architecture of a registered family.
        decoder: configuration of the layers.
        bidirectional: whether tokens see later ones, too.
        pooling: pooling of a model of sentence-transformers; else None.
        labels: number of classes of a text; 0 without a classifier of texts.
        token_labels: number of classes of a token; 0 without a classifier of tokens.
        padding: token id of padding; a text is classified by its last other token. None if its last token counts.
        score: tokens whose logits are the score of a reranker; else None.
    """

    architecture: str
    decoder: DecoderConfig
    bidirectional: bool = False
    pooling: Pooling | None = None
    labels: int = 0
    token_labels: int = 0
    padding: int | None = None
    score: ScoreTokens | None = None

    @property
    def layers(self) -> int:
        """L."""
        return self.decoder.layers

    @property
    def stored_layers(self) -> int:
        """L, as every stored layer is run."""
        return self.decoder.layers

    def first_layers(self, count: int) -> Self:
        """Returns the configuration of a model of the first layers only."""
        return replace(self, decoder=self.decoder.first_layers(count))

    def facts(self) -> dict[str, Any]:
        """Returns the model's entries in the description of a bundle."""
        pooled = {} if self.pooling is None else {"pooling": self.pooling.facts()}
        kinds = {"labels": self.labels or int(self.score is not None), "token_labels": self.token_labels}
        labels = {name: count for name, count in kinds.items() if count}
        return {**self.decoder.facts(), **pooled, **labels}


class DecoderEncoder(Model[DecoderEncoderConfig]):
    """Layers of a decoder that see whole texts at once, without caches.

    ``forward(token_ids [B,T], attention_mask [B,T])``, both i32, gives ``last_hidden_state`` [B,T,D], and a model of
    sentence-transformers ``sentence_embedding`` [B,D]; a classifier gives ``logits`` [B,labels] of the last token
    alone, and so does a reranker with a score from tokens, with one label. Results are f32. The mask is 1 for
    tokens and 0 for padding; a row needs a token. Rows of padding are undefined. A pooling without the prompt takes
    ``pooling_mask`` [B,T], too, 0 for padding and the prompt.
    """

    def __init__(self, config: DecoderEncoderConfig, dtype: DType | str = "f32", num_layers: int | None = None) -> None:
        super().__init__(config, dtype, num_layers)
        config, decoder = self.config, self.config.decoder
        layer = family_of(decoder).layer
        self.embed_tokens = TokenEmbedding(decoder.vocabulary, decoder.hidden, dtype=self.dtype)
        self.layers = Repeated(decoder.layers, lambda index: layer(decoder, index, self.dtype))
        self.norm = norm(decoder, self.dtype)
        self.sentence = None if config.pooling is None else SentenceHead(config.pooling, self.dtype)
        labels, of_tokens = config.labels or config.token_labels, bool(config.token_labels)
        self.score = Linear(decoder.hidden, labels, bias=of_tokens, dtype=self.dtype) if labels else None
        heads = config.score is not None and not decoder.tied
        self.lm_head = TokenEmbedding(decoder.vocabulary, decoder.hidden, dtype=self.dtype) if heads else None

    def forward(self, ctx: ExecutionContext, token_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """Computes the normed states [B, T, D]; all arguments are i32 [B, T]."""
        return self._states(ctx, token_ids, self._step(ctx, attention_mask))

    def _states(self, ctx: ExecutionContext, token_ids: Tensor, step: StepInputs) -> Tensor:
        scale, x = self.config.decoder.embedding_scale, self.embed_tokens(ctx, token_ids)
        x = x if scale == 1.0 else ctx.ops.mul(x, scale)
        for layer in self.layers:
            with ctx.block(layer.path):
                x, _ = layer(ctx, x, step)
        return self.norm(ctx, x)

    def _step(self, ctx: ExecutionContext, attention_mask: Tensor) -> StepInputs:
        """Returns the inputs that the layers share: RoPE's tables, and a mask per window, of attention_mask [B, T]."""
        ops, (batch, tokens), decoder = ctx.ops, attention_mask.shape, self.config.decoder
        real = ops.reshape(ops.not_equal(attention_mask, 0), (batch, 1, tokens))
        biases = {
            window: mask_bias(ctx, self._also(ctx, real, token_distances(ctx, tokens), window))
            for window in dict.fromkeys(decoder.windows)
        }
        positions, ropes = ops.iota((tokens,)), [decoder.rope, *filter(None, [decoder.local_rope])]
        thresholds = [rope.scaling.threshold for rope in ropes]
        length: Tensor | int = tokens
        if any(threshold is not None and tokens > threshold for threshold in thresholds):  # by the text, not by padding
            length = ops.sum(ops.cast(ops.reshape(real, (batch, tokens)), "i32"), 1)
        tables = rope_tables(ctx, decoder.rope, positions, length)
        local = (None, None) if decoder.local_rope is None else rope_tables(ctx, decoder.local_rope, positions, length)
        return StepInputs(*tables, positions, biases, {}, None, *local)

    def _packed_step(self, ctx: ExecutionContext, texts: PackedTexts) -> StepInputs:
        """Returns the inputs that the layers share, of packed texts."""
        decoder, tokens = self.config.decoder, texts.token_ids.shape[1]
        biases = {
            window: mask_bias(ctx, self._also(ctx, texts.seen(ctx), texts.distances(ctx), window))
            for window in dict.fromkeys(decoder.windows)
        }
        positions = texts.token_positions(ctx)
        tables = rope_tables(ctx, decoder.rope, positions, tokens)
        local = (None, None) if decoder.local_rope is None else rope_tables(ctx, decoder.local_rope, positions, tokens)
        return StepInputs(*tables, positions, biases, {}, None, *local, texts.places(ctx))

    def _also(self, ctx: ExecutionContext, real: Tensor, distances: Tensor, window: int | None) -> Tensor:
        """Returns bool [B, T, S], true where ``real`` is and a token sees a key at this distance i32 [T, S]."""
        ops = ctx.ops
        near = near_mask(ctx, distances, max(distances.shape) if window is None else window - 1)
        if not self.config.bidirectional:
            near = ops.logical_and(near, ops.less_equal(distances, 0))
        seen = ops.logical_and(near, real)
        return ops.reshape(seen, (-1, *distances.shape))

    def results(
        self,
        ctx: ExecutionContext,
        token_ids: Tensor,
        attention_mask: Tensor,
        pooling_mask: Tensor | None = None,
    ) -> Mapping[str, Tensor]:
        """Computes the results of ``forward`` of two i32 [B, T]: f32 [B, T, D] with [B, D], or logits [B, labels]."""
        x, score = self(ctx, token_ids, attention_mask), self.config.score
        if self.score is None and score is None:
            states = {"last_hidden_state": ctx.ops.cast(x, f32)}
            if self.sentence is None:
                return states
            return {**states, self.sentence.pooling.result: self.sentence(ctx, x, attention_mask, pooling_mask)}
        if self.score is not None and self.config.token_labels:
            return {"logits": ctx.ops.cast(self.score(ctx, x), f32)}
        return {"logits": self._logits(ctx, x, self._counted(ctx, token_ids, attention_mask))}

    def packed_results(self, ctx: ExecutionContext, texts: PackedTexts) -> Mapping[str, Tensor]:
        """Computes the result f32 [R, ..] of each text of a row of packed texts."""
        x = texts.states(ctx, self._states(ctx, texts.token_ids, self._packed_step(ctx, texts)))
        if self.sentence is None:
            ids = ctx.ops.take(texts.token_ids, texts.places(ctx), 1)
            return {"logits": self._logits(ctx, x, self._counted(ctx, ids, texts.mask(ctx)))}
        return {"sentence_embedding": self.sentence.packed(ctx, x, texts)}

    def _counted(self, ctx: ExecutionContext, token_ids: Tensor, mask: Tensor) -> Tensor:
        """Returns mask i32 [B, T] without the tokens of padding's id, of token_ids broadcast to [B, T].

        The first token of each text counts always, so that a text has one.
        """
        if self.config.padding is None:
            return mask
        ops = ctx.ops
        places = ops.reshape(first_places(ctx, mask), (mask.shape[0], 1))
        is_first = ops.equal(ops.iota((1, mask.shape[1]), 1), places)
        is_text = ops.logical_or(is_first, ops.not_equal(token_ids, self.config.padding))
        return ops.mul(mask, ops.cast(is_text, "i32"))

    def _logits(self, ctx: ExecutionContext, x: Tensor, mask: Tensor) -> Tensor:
        """Computes the logits f32 [B, labels] of the last tokens of states x [B, T, D], of mask i32 [B, T]."""
        last, score = states_at(ctx, x, last_places(ctx, mask)), self.config.score
        if score is not None:
            scored = in_whole_rows(ctx, lambda inner, rows: self._token_score(inner, rows, score), last, mask)
            return ctx.ops.cast(scored, f32)
        assert self.score is not None  # there is a classifier, or there are tokens of a score
        return ctx.ops.cast(in_whole_rows(ctx, self.score, last, mask), f32)

    def _token_score(self, ctx: ExecutionContext, x: Tensor, score: ScoreTokens) -> Tensor:
        """Computes the logit of ``yes``, less that of ``no``, of states x [B, D]: f32 [B, 1]."""
        ops, table = ctx.ops, self.embed_tokens if self.lm_head is None else self.lm_head
        ids = [score.yes] if score.no is None else [score.yes, score.no]
        rows = ops.cast(table(ctx, ops.constant(np.array(ids, np.int32))), f32)
        logits = ops.dot_general(ops.cast(x, f32), rows, ((1,), (1,)))
        if score.no is None:
            return logits
        yes, no = ops.split(logits, (1, 1), 1)
        return ops.sub(yes, no)

    def text_lengths(self, limit: int | None) -> tuple[int, ...]:
        """Returns the T of ``forward`` that an export has by default; see ``Model.text_lengths``."""
        if self.sentence is None and self.score is None and self.config.score is None:
            return ()
        positions = self.config.decoder.rope.trained_length
        return buckets(positions if limit is None else min(limit, positions), self.config.decoder.heads)

    def packed_lengths(self, longest: int) -> tuple[int, ...]:
        """Returns the T of the entry points of packed texts; see ``Model.packed_lengths``."""
        pooling = self.config.pooling
        if self.config.token_labels or (pooling is not None and pooling.of_tokens):
            return ()
        decoder = self.config.decoder
        return packed_sizes(longest, [decoder.rope, *filter(None, [decoder.local_rope])])

    def default_profile(self, batch: int, sequence: int | None, max_sequence: int | None) -> CompileProfile:
        """Returns a profile of the sizes; T is 64 by default, and at most RoPE's maximum."""
        rope = self.config.decoder.rope
        tokens = min(DEFAULT_SEQUENCE, rope.trained_length) if sequence is None else sequence
        check_size("batch", batch)
        why = "the positions that the model's RoPE reaches (max_position_embeddings and its scaling)"
        check_size("sequence", tokens, rope.reach, why)
        return encoder_profile(batch, tokens, self.dtype)

    def entry_point(self, profile: CompileProfile) -> EntryPoint:
        """Builds ``forward``."""
        spec = TensorSpec((profile.batch, profile.sequence), "i32")
        inputs = ("token_ids", "attention_mask", *pooling_inputs(self.config.pooling))
        if is_packed(profile.name):
            return packed_entry_point(profile.name, self.packed_results, spec, inputs)
        return text_entry_point(profile.name, self.results, spec, inputs)

    def tied(self) -> dict[str, str]:
        """Returns the head's name, if it is the embedding."""
        return {"lm_head.weight": self.embed_tokens.weight.path} if self.config.decoder.tied else {}
