"""Heads of encoders of texts: masked language models, classifiers of texts and of tokens, and spans of answers."""

from collections.abc import Mapping

from lang_core import DType, ExecutionContext, Module, Parameter, Tensor, f32
from transformer_core.family._packed_texts import PackedTexts
from transformer_core.family._sentence import Pooling, PoolingMode, first_state
from transformer_core.family._whole_rows import in_whole_rows
from transformer_core.layers._linear import Linear, VocabularyLinear
from transformer_core.layers._logits import logits_of
from transformer_core.models.encoders._stack import layer_norm
from transformer_core.models.encoders._text import HeadConfig, TextConfig, TextModel


class Transform(Module):
    """A matrix, an activation and a norm."""

    def __init__(self, config: TextConfig, head: HeadConfig, dtype: DType, size: int | None = None) -> None:
        hidden = config.stack.hidden
        self.dense = Linear(hidden, size or hidden, bias=head.bias, dtype=dtype)
        self.norm = layer_norm(config.stack, dtype, size)
        self.activation = head.activation

    def forward(self, ctx: ExecutionContext, x: Tensor) -> Tensor:
        """Maps x [.., D] to [.., D]."""
        return self.norm(ctx, self.activation(ctx, self.dense(ctx, x)))


class Head(Transform):
    """Head that predicts masked tokens; its last matrix is the embedding, unless the checkpoint stores another one."""

    def __init__(self, config: TextConfig, head: HeadConfig, dtype: DType) -> None:
        super().__init__(config, head, dtype, head.size or config.embedding)
        own = head.size is not None or head.aliases[0] in config.untied
        size = head.size or config.embedding or config.stack.hidden
        self.decoder = VocabularyLinear(size, config.vocabulary, dtype=dtype) if own else None
        self.bias = Parameter((config.vocabulary,), dtype) if head.output_bias else None

    def logits(self, ctx: ExecutionContext, x: Tensor, embedding: Parameter) -> Tensor:
        """Maps x [B, T, D] to logits f32 [B, T, V]."""
        return logits_of(ctx, self(ctx, x), embedding if self.decoder is None else self.decoder.weight, self.bias)


class PlainHead(Module):
    """Head that predicts masked tokens by a matrix of its own."""

    def __init__(self, config: TextConfig, head: HeadConfig, dtype: DType) -> None:
        self.decoder = VocabularyLinear(config.stack.hidden, config.vocabulary, dtype=dtype)
        self.bias = Parameter((config.vocabulary,), dtype) if head.output_bias else None

    def logits(self, ctx: ExecutionContext, x: Tensor, embedding: Parameter) -> Tensor:
        """Maps x [B, T, D] to logits f32 [B, T, V]; ``embedding`` is not read."""
        return logits_of(ctx, x, self.decoder.weight, self.bias)


class TextForMaskedLM(TextModel):
    """Encoder of texts that predicts masked tokens: ``forward`` as of ``TextModel``, with f32 ``logits`` [B,T,V]."""

    def __init__(self, config: TextConfig, dtype: DType | str = "f32", num_layers: int | None = None) -> None:
        super().__init__(config, dtype, num_layers)
        assert config.head is not None  # its families' configurations have one
        self.head = (PlainHead if config.head.plain else Head)(self.config, config.head, self.dtype)

    def results(
        self,
        ctx: ExecutionContext,
        token_ids: Tensor,
        attention_mask: Tensor,
        token_type_ids: Tensor | None = None,
        pooling_mask: Tensor | None = None,
    ) -> Mapping[str, Tensor]:
        """Computes ``logits`` f32 [B, T, V]; all arguments are i32 [B, T], and ``pooling_mask`` is not read."""
        x = self(ctx, token_ids, attention_mask, token_type_ids)
        return {"logits": self.head.logits(ctx, x, self.embeddings.tokens.weight)}

    def tied(self) -> dict[str, str]:
        """Returns the head's last matrix and its bias, which some checkpoints store twice."""
        assert self.config.head is not None
        matrix, bias = self.config.head.aliases
        aliases: dict[str, str] = {matrix: self.embeddings.tokens.weight.path} if matrix else {}
        aliases |= {bias: self.head.bias.path} if bias and self.head.bias is not None else {}
        return {name: path for name, path in aliases.items() if name not in self.config.untied}

    def untied(self) -> dict[str, str]:
        """Returns the head's last matrix and its bias if the checkpoint stores them with values of their own."""
        assert self.config.head is not None
        matrix, bias = self.config.head.aliases
        own = {} if self.head.decoder is None or not matrix else {self.head.decoder.weight.path: matrix}
        return own | ({self.head.bias.path: bias} if self.head.bias is not None and bias in self.config.untied else {})


class TextForSequenceClassification(TextModel):
    """Encoder that classifies texts or pairs of texts: ``forward`` as of ``TextModel``, with f32 ``logits`` [B,labels].

    With one label the logit is a score: cross-encoders rank texts by it.
    """

    def __init__(self, config: TextConfig, dtype: DType | str = "f32", num_layers: int | None = None) -> None:
        super().__init__(config, dtype, num_layers)
        head = self.config.head
        self.head = None if head is None else Transform(self.config, head, self.dtype)
        self._pooling = Pooling(PoolingMode.CLS if head is None else head.pooling, normalize=False)
        self.classifier = Linear(self.config.stack.hidden, self.config.labels, bias=True, dtype=self.dtype)

    def results(
        self,
        ctx: ExecutionContext,
        token_ids: Tensor,
        attention_mask: Tensor,
        token_type_ids: Tensor | None = None,
        pooling_mask: Tensor | None = None,
    ) -> Mapping[str, Tensor]:
        """Computes ``logits`` f32 [B, labels]; all arguments are i32 [B, T], and ``pooling_mask`` is not read."""
        x = self(ctx, token_ids, attention_mask, token_type_ids)
        return {"logits": self._logits(ctx, x, attention_mask)}

    def packed_results(self, ctx: ExecutionContext, texts: PackedTexts) -> Mapping[str, Tensor]:
        """Computes ``logits`` f32 [R, labels] of a row of packed texts."""
        return {"logits": self._logits(ctx, self._packed_states(ctx, texts), texts.mask(ctx))}

    def _logits(self, ctx: ExecutionContext, x: Tensor, mask: Tensor) -> Tensor:
        """Maps states x [B, T, D] to logits f32 [B, labels]; of packed texts x is [1, T, D] and the mask [R, T]."""
        return ctx.ops.cast(in_whole_rows(ctx, self._classified, self._vectors(ctx, x, mask), mask), f32)

    def _classified(self, ctx: ExecutionContext, vectors: Tensor) -> Tensor:
        return self.classifier(ctx, self._transformed(ctx, vectors))

    def _vectors(self, ctx: ExecutionContext, x: Tensor, mask: Tensor) -> Tensor:
        """Maps states to a vector of each text, [B, D]; arguments as of ``_logits``."""
        if self.head is None:
            return first_state(ctx, x, mask)
        return ctx.ops.cast(self._pooling(ctx, ctx.ops.cast(x, f32), mask), x.dtype)

    def _transformed(self, ctx: ExecutionContext, vectors: Tensor) -> Tensor:
        """Maps vectors [B, D] to what is classified, [B, D]."""
        if self.head is not None:
            return self.head(ctx, vectors)
        assert self.pooler is not None  # a classifier has a pooler or a head
        return ctx.ops.tanh(self.pooler(ctx, vectors))


class ActivatedSequenceClassification(TextForSequenceClassification):
    """Classifier of texts by the first token's state, a matrix and the layers' activation; otherwise as its base."""

    def _transformed(self, ctx: ExecutionContext, vectors: Tensor) -> Tensor:
        assert self.pooler is not None  # its configuration has one
        return self.config.stack.activation(ctx, self.pooler(ctx, vectors))


class TextForTokenClassification(TextModel):
    """Encoder that classifies each token: ``forward`` as of ``TextModel``, with f32 ``logits`` [B,T,labels]."""

    def __init__(self, config: TextConfig, dtype: DType | str = "f32", num_layers: int | None = None) -> None:
        super().__init__(config, dtype, num_layers)
        head = self.config.head
        self.head = None if head is None else Transform(self.config, head, self.dtype)
        self.classifier = Linear(self.config.stack.hidden, self.config.token_labels, bias=True, dtype=self.dtype)

    def results(
        self,
        ctx: ExecutionContext,
        token_ids: Tensor,
        attention_mask: Tensor,
        token_type_ids: Tensor | None = None,
        pooling_mask: Tensor | None = None,
    ) -> Mapping[str, Tensor]:
        """Computes ``logits`` f32 [B, T, labels]; all arguments are i32 [B, T], and ``pooling_mask`` is not read."""
        x = self(ctx, token_ids, attention_mask, token_type_ids)
        return {"logits": ctx.ops.cast(self.classifier(ctx, x if self.head is None else self.head(ctx, x)), f32)}


class TextForQuestionAnswering(TextModel):
    """Encoder that finds answers: ``forward`` as of ``TextModel``, with ``start_logits``, ``end_logits`` f32 [B,T]."""

    def __init__(self, config: TextConfig, dtype: DType | str = "f32", num_layers: int | None = None) -> None:
        super().__init__(config, dtype, num_layers)
        head = self.config.head
        self.head = None if head is None else Transform(self.config, head, self.dtype)
        self.qa_outputs = Linear(self.config.stack.hidden, 2, bias=True, dtype=self.dtype)

    def results(
        self,
        ctx: ExecutionContext,
        token_ids: Tensor,
        attention_mask: Tensor,
        token_type_ids: Tensor | None = None,
        pooling_mask: Tensor | None = None,
    ) -> Mapping[str, Tensor]:
        """Computes the logits f32 [B, T]; all arguments are i32 [B, T], and ``pooling_mask`` is not read."""
        ops, x = ctx.ops, self(ctx, token_ids, attention_mask, token_type_ids)
        spans = ops.cast(self.qa_outputs(ctx, x if self.head is None else self.head(ctx, x)), f32)
        start, end = ops.split(spans, (1, 1), 2)
        shape = token_ids.shape
        return {"start_logits": ops.reshape(start, shape), "end_logits": ops.reshape(end, shape)}
