"""Heads of encoders of texts: masked language models, and classifiers."""

from collections.abc import Mapping

from lang_core import DType, ExecutionContext, Module, Parameter, Tensor, f32
from transformer_core.family._packed_texts import PackedTexts
from transformer_core.family._sentence import Pooling, PoolingMode
from transformer_core.layers._linear import Linear, VocabularyLinear
from transformer_core.layers._logits import logits_of
from transformer_core.models.encoders._stack import layer_norm
from transformer_core.models.encoders._text import HeadConfig, TextConfig, TextModel, pooled


class Transform(Module):
    """A matrix, an activation and a norm."""

    def __init__(self, config: TextConfig, head: HeadConfig, dtype: DType) -> None:
        hidden = config.stack.hidden
        self.dense = Linear(hidden, hidden, bias=head.bias, dtype=dtype)
        self.norm = layer_norm(config.stack, dtype)
        self.activation = head.activation

    def forward(self, ctx: ExecutionContext, x: Tensor) -> Tensor:
        """Maps x [.., D] to [.., D]."""
        return self.norm(ctx, self.activation(ctx, self.dense(ctx, x)))


class Head(Transform):
    """Head that predicts masked tokens; its last matrix is the embedding, unless the checkpoint stores another one."""

    def __init__(self, config: TextConfig, head: HeadConfig, dtype: DType) -> None:
        super().__init__(config, head, dtype)
        own = head.aliases[0] in config.untied
        self.decoder = VocabularyLinear(config.stack.hidden, config.vocabulary, dtype=dtype) if own else None
        self.bias = Parameter((config.vocabulary,), dtype) if head.output_bias else None

    def logits(self, ctx: ExecutionContext, x: Tensor, embedding: Parameter) -> Tensor:
        """Maps x [B, T, D] to logits f32 [B, T, V]."""
        return logits_of(ctx, self(ctx, x), embedding if self.decoder is None else self.decoder.weight, self.bias)


class TextForMaskedLM(TextModel):
    """Encoder of texts that predicts masked tokens: ``forward`` as of ``TextModel``, with f32 ``logits`` [B,T,V]."""

    def __init__(self, config: TextConfig, dtype: DType | str = "f32", num_layers: int | None = None) -> None:
        super().__init__(config, dtype, num_layers)
        assert config.head is not None  # its families' configurations have one
        self.head = Head(self.config, config.head, self.dtype)

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
        aliases: dict[str, str] = {matrix: self.embeddings.tokens.weight.path}
        aliases |= {bias: self.head.bias.path} if bias and self.head.bias is not None else {}
        return {name: path for name, path in aliases.items() if name not in self.config.untied}

    def untied(self) -> dict[str, str]:
        """Returns the head's last matrix and its bias if the checkpoint stores them with values of their own."""
        assert self.config.head is not None
        matrix, bias = self.config.head.aliases
        own = {} if self.head.decoder is None else {self.head.decoder.weight.path: matrix}
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
        return {"logits": ctx.ops.cast(self.classifier(ctx, self._pooled(ctx, x, attention_mask)), f32)}

    def packed_results(self, ctx: ExecutionContext, texts: PackedTexts) -> Mapping[str, Tensor]:
        """Computes ``logits`` f32 [R, labels] of a row of packed texts."""
        x = self._packed_states(ctx, texts)
        return {"logits": ctx.ops.cast(self.classifier(ctx, self._pooled(ctx, x, texts.mask(ctx))), f32)}

    def _pooled(self, ctx: ExecutionContext, x: Tensor, attention_mask: Tensor) -> Tensor:
        """Maps states x [B, T, D] to the input of the classifier, [B, D].

        Of packed texts x is [1, T, D] and the mask [R, T].
        """
        if self.pooler is not None:
            return pooled(ctx, self.pooler, x, attention_mask)
        assert self.head is not None  # a classifier has a pooler or a head
        text = self._pooling(ctx, ctx.ops.cast(x, f32), attention_mask)
        return self.head(ctx, ctx.ops.cast(text, x.dtype))
