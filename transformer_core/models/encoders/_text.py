"""Encoders of texts: shared parts of BERT and its successors."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from lang_core import (
    DType,
    EntryPoint,
    ExecutionContext,
    Module,
    Tensor,
    TensorSpec,
    checked_choices,
    f32,
)
from transformer_core.family._model import DEFAULT_SEQUENCE, Model, buckets, check_size
from transformer_core.family._packed_texts import PackedTexts, is_packed, packed_sizes
from transformer_core.family._sentence import Pooling, PoolingMode, first_state
from transformer_core.flow import CompileProfile
from transformer_core.layers._embedding import Embedding, TokenEmbedding
from transformer_core.layers._feed_forward import Activation
from transformer_core.layers._linear import Linear
from transformer_core.layers._masks import mask_bias, padding_bias, token_distances
from transformer_core.layers._relative_bias import RelativeBias, alibi_bias
from transformer_core.models.encoders._sentence_head import (
    SentenceHead,
    check_vectors,
    packed_entry_point,
    pooling_inputs,
    text_entry_point,
)
from transformer_core.models.encoders._stack import EncoderConfig, EncoderStack, encoder_profile, layer_norm
from transformer_core.models.encoders._windows import Windows


@checked_choices
@dataclass(frozen=True, slots=True)
class HeadConfig:
    """Configuration of the head of a masked language model, and of classifiers like it (ModernBERT).

    Attributes:
        activation: activation between its matrix and its norm.
        bias: whether its matrix has a bias.
        output_bias: whether the logits have a bias.
        pooling: pooling of the states of a classified text.
        plain: whether its last matrix is all of it (NeoBERT).
        size: size of the states that its last matrix takes, if it is no embedding (RemBERT); else None.
        aliases: keys under which checkpoints may store the embedding and the bias of the logits once more.
    """

    activation: Activation
    bias: bool = True
    output_bias: bool = True
    pooling: PoolingMode = PoolingMode.CLS
    plain: bool = False
    size: int | None = None
    aliases: tuple[str, str] = ("", "")


@checked_choices
@dataclass(frozen=True, slots=True, kw_only=True)
class TextConfig(EncoderConfig):
    """Configuration of an encoder of texts; further attributes as of ``EncoderConfig``.

    Attributes:
        vocabulary: V.
        positions: the most tokens of a text.
        types: number of token types (first sentence, second sentence); 0 without embeddings of types.
        learned_positions: whether positions have embeddings.
        longest: the most tokens of a text, if they are fewer than ``positions`` (BigBird); else None.
        embedding_scale: factor of the embeddings of tokens.
        tasks: number of embeddings of tasks, the first of which is added (ERNIE); 0 without.
        padding: token id without a position; positions are counted from the one after it (RoBERTa). None if they
            are counted from 0.
        relative_rows: rows of the table of biases by distance; 0 without biases.
        alibi: whether scores fall with the distance, by a slope of each head.
        embedding_norm: whether the embeddings are normed.
        dropped_token: id of the mask token, if its embedding is 0 and the others grow with its share of the text, as
            dropout would have it (ESM); else None.
        embed: makes the embeddings of a configuration and dtype; ``Embeddings`` if None.
        windows: windows of the layers (Longformer); None if every token sees all others.
        zero_padding: whether padding has embeddings of 0 (DeBERTa, ESM).
        embedding: size of the embeddings, which a matrix then maps to D (ELECTRA, ALBERT); None if they have size D.
        final_norm: whether a norm follows the last layer.
        pooler: whether a layer computes ``pooler_output`` from the first token's state.
        pooling: pooling of a model of sentence-transformers; else None.
        head: head of a masked language model; None without one.
        labels: number of classes of a text; 0 without a classifier of texts.
        token_labels: number of classes of a token; 0 without a classifier of tokens.
        answers: whether a head finds the span of an answer.
    """

    vocabulary: int
    positions: int
    types: int
    learned_positions: bool = True
    longest: int | None = None
    embedding_scale: float = 1.0
    tasks: int = 0
    padding: int | None = None
    relative_rows: int = 0
    alibi: bool = False
    embedding_norm: bool = True
    dropped_token: int | None = None
    embed: "Callable[[TextConfig, DType], Module] | None" = None
    windows: Windows | None = None
    zero_padding: bool = False
    embedding: int | None = None
    final_norm: bool = False
    pooler: bool = False
    pooling: Pooling | None = None
    head: HeadConfig | None = None
    labels: int = 0
    token_labels: int = 0
    answers: bool = False

    @property
    def reads_texts(self) -> bool:
        """True if the results are those of a whole text, whatever its length: vectors, classes, answers or tokens."""
        return bool(self.pooling or self.labels or self.token_labels or self.answers or self.head)

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of the arguments of ``forward``."""
        types = ("token_type_ids",) if self.types > 1 else ()
        return ("token_ids", "attention_mask", *types, *pooling_inputs(self.pooling))

    def facts(self) -> dict[str, Any]:
        """Returns the model's entries in the description of a bundle."""
        pooled = {} if self.pooling is None else {"pooling": self.pooling.facts()}
        sizes = {"vocabulary": self.vocabulary, "positions": self.positions, "types": self.types}
        kinds = {"labels": self.labels, "token_labels": self.token_labels, "answers": self.answers}
        labels = {name: value for name, value in kinds.items() if value}
        return {**sizes, **self.stack.facts(), **pooled, **labels}


def with_pooling(config: TextConfig, pooling: Pooling) -> TextConfig:
    """Returns the configuration of a model of sentence-transformers.

    Raises:
        ConfigError: the pooling is of vectors of another size.
    """
    check_vectors(pooling, config.stack.hidden)
    return replace(config, pooler=False, pooling=pooling)


class Embeddings(Module):
    """Sum of the embeddings of token, position and type, as far as there are some, and their norm."""

    def __init__(self, config: TextConfig, dtype: DType) -> None:
        hidden, before = config.embedding or config.stack.hidden, 0 if config.padding is None else config.padding + 1
        self.padding, self.dropped = config.padding, config.dropped_token
        self.tokens = TokenEmbedding(config.vocabulary, hidden, dtype=dtype)
        self.positions = Embedding(before + config.positions, hidden, dtype=dtype) if config.learned_positions else None
        self.types = Embedding(config.types, hidden, dtype=dtype) if config.types else None
        self.tasks = Embedding(config.tasks, hidden, dtype=dtype) if config.tasks else None
        self.scale = config.embedding_scale
        self.norm = layer_norm(config.stack, dtype, hidden) if config.embedding_norm else None
        mapped = config.embedding is not None
        self.project = Linear(hidden, config.stack.hidden, bias=True, dtype=dtype) if mapped else None

    def forward(
        self,
        ctx: ExecutionContext,
        token_ids: Tensor,
        token_type_ids: Tensor | None = None,
        texts: PackedTexts | None = None,
        attention_mask: Tensor | None = None,
    ) -> Tensor:
        """Embeds token_ids and token_type_ids, i32 [B, T], as [B, T, D]; types are 0 if they are not given.

        Positions are those of packed ``texts``; 0 to T - 1 if None. ``attention_mask`` is that of other texts.
        """
        x = self.summed(ctx, token_ids, token_type_ids, texts, attention_mask)
        x = x if self.norm is None else self.norm(ctx, x)
        return x if self.project is None else self.project(ctx, x)

    def summed(
        self,
        ctx: ExecutionContext,
        token_ids: Tensor,
        token_type_ids: Tensor | None = None,
        texts: PackedTexts | None = None,
        attention_mask: Tensor | None = None,
    ) -> Tensor:
        """Returns the sum that ``forward`` norms, [B, T, D]."""
        ops = ctx.ops
        positions = None if texts is None else texts.positions
        x = self.tokens(ctx, token_ids)
        if self.dropped is not None:
            is_dropped = ops.equal(token_ids, self.dropped)
            x = self._with_dropped(ctx, x, is_dropped, _share(ctx, is_dropped, texts, attention_mask))
        x = x if self.scale == 1.0 else ops.mul(x, self.scale)
        if self.tasks is not None:
            x = ops.add(x, self.tasks(ctx, ops.mul(ops.iota((1,)), 0)))
        if self.types is not None:
            types = ops.mul(ops.iota((1,)), 0) if token_type_ids is None else token_type_ids
            x = ops.add(x, self.types(ctx, types))
        if self.positions is not None:
            x = ops.add(x, self.positions(ctx, self._places(ctx, token_ids, positions)))
        return x

    def _with_dropped(self, ctx: ExecutionContext, x: Tensor, is_dropped: Tensor, share: Tensor) -> Tensor:
        """Drops tokens of x [B, T, D]: bool [B, T], whose share of their text is f32 [B, T] or [B, 1]."""
        ops, (batch, tokens) = ctx.ops, is_dropped.shape
        scale = ops.div(1 - _DROPPED_IN_TRAINING, ops.sub(1.0, ops.reshape(share, (batch, -1, 1))))
        scaled = ops.cast(ops.mul(ops.cast(x, f32), scale), x.dtype)
        return ops.select(ops.reshape(is_dropped, (batch, tokens, 1)), 0.0, scaled)

    def _places(self, ctx: ExecutionContext, token_ids: Tensor, positions: Tensor | None) -> Tensor:
        """Returns the rows of the positions of token_ids i32 [B, T]: i32 [T], or [B, T]."""
        ops = ctx.ops
        if self.padding is None:
            return ops.iota((token_ids.shape[1],)) if positions is None else positions
        counted = ops.cast(ops.not_equal(token_ids, self.padding), "i32")
        count = ops.cumsum(counted, 1)
        if positions is not None:  # less those before the token's own text
            begins = ops.sub(ops.iota((1, token_ids.shape[1]), 1), positions)
            count = ops.sub(count, ops.take(ops.reshape(ops.sub(count, counted), (-1,)), begins))
        return ops.add(ops.mul(count, counted), self.padding)


# Share of tokens that ESM's training replaced by the mask token: fixed in all its models.
_DROPPED_IN_TRAINING = 0.15 * 0.8


def _share(ctx: ExecutionContext, chosen: Tensor, texts: PackedTexts | None, attention_mask: Tensor | None) -> Tensor:
    """Returns the share of chosen tokens, bool [B, T], of each text: f32 [B, 1]; of packed texts by token, [1, T]."""
    ops, counted = ctx.ops, ctx.ops.cast(chosen, f32)
    if texts is None:
        assert attention_mask is not None  # texts that are not packed have one
        return ops.div(ops.sum(counted, 1, True), ops.sum(ops.cast(attention_mask, f32), 1, True))
    mask = ops.cast(texts.mask(ctx), f32)
    counts = ops.sum(ops.mul(mask, ops.take(counted, texts.places(ctx), 1)), 1)
    shares = ops.div(counts, ops.maximum(ops.sum(mask, 1), 1.0))
    return ops.take(shares, ops.maximum(texts.text_ids, 0))


# Buckets of biases by distance, and the distance from which on all share the last one: fixed in MPNet.
_BUCKETS = 32
_LONGEST = 128


class TextModel(Model[TextConfig]):
    """Encoder of texts without a head.

    ``forward(token_ids [B,T], attention_mask [B,T], token_type_ids [B,T])``, all i32, gives ``last_hidden_state``
    [B,T,D] and, if the model has a pooler, ``pooler_output`` [B,D]; a model of sentence-transformers gives
    ``sentence_embedding`` [B,D] in the pooler's place. Results are f32. The mask is 1 for tokens and 0 for padding; a
    row needs a token. Rows of padding are undefined. Models with fewer than two types of tokens lack
    ``token_type_ids``. A pooling without the prompt takes ``pooling_mask`` [B,T], too, 0 for padding and the prompt.
    """

    def __init__(self, config: TextConfig, dtype: DType | str = "f32", num_layers: int | None = None) -> None:
        super().__init__(config, dtype, num_layers)
        config, hidden = self.config, self.config.stack.hidden
        self.embeddings: Any = (config.embed or Embeddings)(config, self.dtype)
        self.encoder = EncoderStack(config.stack, self.dtype)
        self.relative = (
            RelativeBias(config.relative_rows, config.stack.heads, buckets=_BUCKETS, longest=_LONGEST, dtype=self.dtype)
            if config.relative_rows
            else None
        )
        self.norm = layer_norm(config.stack, self.dtype) if config.final_norm else None
        self.pooler = Linear(hidden, hidden, bias=True, dtype=self.dtype) if config.pooler else None
        self.sentence = None if config.pooling is None else SentenceHead(config.pooling, self.dtype)

    def forward(
        self,
        ctx: ExecutionContext,
        token_ids: Tensor,
        attention_mask: Tensor,
        token_type_ids: Tensor | None = None,
    ) -> Tensor:
        """Computes the last layer's states [B, T, D]; all arguments are i32 [B, T]."""
        x, bias = (
            self.embeddings(ctx, token_ids, token_type_ids, None, attention_mask),
            padding_bias(ctx, attention_mask),
        )
        if self.config.zero_padding:
            ops, (batch, tokens) = ctx.ops, attention_mask.shape
            is_real = ops.not_equal(attention_mask, 0)
            x = ops.select(ops.reshape(is_real, (batch, tokens, 1)), x, 0.0)
            if self.config.stack.relative is not None:  # and padding sees all tokens alike, as in DeBERTa
                bias = ops.minimum(bias, mask_bias(ctx, ops.reshape(is_real, (batch, 1, 1, tokens, 1))))
        windows = self.config.windows
        if windows is None:
            return self._states(ctx, x, bias)
        everywhere = windows.global_tokens(ctx, token_ids)
        tables = None if everywhere is None else (everywhere, bias)
        return self.encoder(ctx, x, windows.biases(ctx, attention_mask, everywhere), tables=tables)

    def _states(self, ctx: ExecutionContext, x: Tensor, bias: Tensor, texts: PackedTexts | None = None) -> Tensor:
        """Computes the last layer's states [B, T, D] of embeddings x; ``bias`` and ``texts`` as of ``EncoderStack``."""
        if self.relative is not None or self.config.alibi:
            distances = token_distances(ctx, x.shape[1]) if texts is None else texts.distances(ctx)
            if self.relative is not None:
                bias = ctx.ops.add(self.relative.between(ctx, distances, x.shape[1]), bias)
            if self.config.alibi:
                bias = ctx.ops.add(alibi_bias(ctx, self.config.stack.heads, distances), bias)
        x = self.encoder(ctx, x, bias, texts)
        return x if self.norm is None else self.norm(ctx, x)

    def results(
        self,
        ctx: ExecutionContext,
        token_ids: Tensor,
        attention_mask: Tensor,
        token_type_ids: Tensor | None = None,
        pooling_mask: Tensor | None = None,
    ) -> Mapping[str, Tensor]:
        """Computes the results of ``forward`` of arguments i32 [B, T]: f32 [B, T, D], and a vector [B, D] if any."""
        x = self(ctx, token_ids, attention_mask, token_type_ids)
        results = {"last_hidden_state": ctx.ops.cast(x, f32)}
        if self.sentence is not None:
            results[self.sentence.pooling.result] = self.sentence(ctx, x, attention_mask, pooling_mask)
        elif self.pooler is not None:
            results["pooler_output"] = ctx.ops.cast(pooled(ctx, self.pooler, x), f32)
        return results

    def packed_results(self, ctx: ExecutionContext, texts: PackedTexts) -> Mapping[str, Tensor]:
        """Computes the result f32 [R, ..] of each text of a row of packed texts."""
        x = self._packed_states(ctx, texts)
        assert self.sentence is not None  # others have no lengths, and no entry point of packed texts
        return {"sentence_embedding": self.sentence.packed(ctx, x, texts)}

    def _packed_states(self, ctx: ExecutionContext, texts: PackedTexts) -> Tensor:
        """Computes the last layer's states [1, S, D] in the places of the keys."""
        x = self.embeddings(ctx, texts.token_ids, texts.token_type_ids, texts)
        return texts.states(ctx, self._states(ctx, x, texts.bias(ctx), texts))

    def packed_lengths(self, longest: int) -> tuple[int, ...]:
        """Returns the T of the entry points of packed texts; see ``Model.packed_lengths``."""
        joins = self.config.embed is None and self.config.windows is None
        joins = joins and not (self.config.pooling is not None and self.config.pooling.of_tokens)
        if not joins or (self.sentence is None and not self.config.labels):
            return ()
        return packed_sizes(longest, self.config.stack.ropes)

    def text_lengths(self, limit: int | None) -> tuple[int, ...]:
        """Returns the T of ``forward`` that an export has by default; see ``Model.text_lengths``."""
        if not self.config.reads_texts:
            return ()
        positions = self.config.longest or self.config.positions
        return buckets(positions if limit is None else min(limit, positions), self.config.stack.heads)

    def default_profile(self, batch: int, sequence: int | None, max_sequence: int | None) -> CompileProfile:
        """Returns a profile of the sizes; T is 64 by default, and at most the positions that the model has."""
        positions = self.config.longest or self.config.positions
        if sequence is None:
            sequence = min(DEFAULT_SEQUENCE, positions)
        check_size("batch", batch)
        check_size("sequence", sequence, positions, self._limit())
        return encoder_profile(batch, sequence, self.dtype)

    def _limit(self) -> str:
        if self.config.longest is not None:
            return "texts that are attended to as a whole: longer ones have sparse attention by random blocks"
        if self.config.learned_positions:
            return "the positions that have embeddings (max_position_embeddings)"
        return "the positions of the model (max_position_embeddings)"

    def entry_point(self, profile: CompileProfile) -> EntryPoint:
        """Builds ``forward``."""
        spec = TensorSpec((profile.batch, profile.sequence), "i32")
        if is_packed(profile.name):
            return packed_entry_point(profile.name, self.packed_results, spec, self.config.inputs)
        return text_entry_point(profile.name, self.results, spec, self.config.inputs)


def pooled(ctx: ExecutionContext, pooler: Linear, x: Tensor) -> Tensor:
    """Applies a pooler to the first token's state of x [B, T, D]: [B, D]."""
    return ctx.ops.tanh(pooler(ctx, first_state(ctx, x)))
