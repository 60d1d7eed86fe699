"""BERT (Devlin et al. 2018, arXiv:1810.04805): embeddings of tokens in their context, both sides of it."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from lang_core import (
    Argument,
    ConfigError,
    DType,
    EntryPoint,
    ExecutionContext,
    Module,
    Parameter,
    Tensor,
    TensorSpec,
    f32,
)
from transformer_core._config_fields import ConfigFields
from transformer_core._embedding import Embedding
from transformer_core._feed_forward import Activation
from transformer_core._linear import Linear
from transformer_core._logits import logits_of
from transformer_core._masks import padding_bias
from transformer_core._norm import LayerNorm
from transformer_core.checkpoints import RenamedModules
from transformer_core.family._fields import activation_of
from transformer_core.family._model import DEFAULT_SEQUENCE, Model, ModelFamily, check_size
from transformer_core.family._sentence import Pooling
from transformer_core.flow import CompileProfile
from transformer_core.models.encoders._stack import (
    EncoderConfig,
    EncoderStack,
    StackConfig,
    encoder_profile,
    labels_of,
    layer_norm,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class BertConfig(EncoderConfig):
    """A BERT; attributes as ``EncoderConfig``.

    Attributes:
        vocabulary: V.
        positions: how many have embeddings.
        types: how many kinds of tokens there are (of the first sentence, of the second).
        pooler: whether the first token's state goes through a layer of its own.
        pooling: how sentences are embedded, of a model of sentence-transformers; else None.
        labels: how many classes it tells apart; 0 of a model without a classifier.
    """

    vocabulary: int
    positions: int
    types: int
    pooler: bool = False
    pooling: Pooling | None = None
    labels: int = 0

    def facts(self) -> dict[str, Any]:
        """What the description of a bundle says of the model."""
        pooled = {} if self.pooling is None else {"pooling": self.pooling.facts()}
        sizes = {"vocabulary": self.vocabulary, "positions": self.positions, "types": self.types}
        labels = {"labels": self.labels} if self.labels else {}
        return {**sizes, **self.stack.facts(), **pooled, **labels}


class Embeddings(Module):
    """The embeddings of token, position and type, added and normed."""

    def __init__(self, config: BertConfig, dtype: DType) -> None:
        hidden = config.stack.hidden
        self.tokens = Embedding(config.vocabulary, hidden, dtype=dtype)
        self.positions = Embedding(config.positions, hidden, dtype=dtype)
        self.types = Embedding(config.types, hidden, dtype=dtype)
        self.norm = layer_norm(config.stack, dtype)

    def forward(self, ctx: ExecutionContext, token_ids: Tensor, token_type_ids: Tensor) -> Tensor:
        """token_ids and token_type_ids, i32 [B, T]: [B, T, D]."""
        ops = ctx.ops
        x = ops.add(self.tokens(ctx, token_ids), self.types(ctx, token_type_ids))
        x = ops.add(x, self.positions(ctx, ops.iota((token_ids.shape[1],))))
        return self.norm(ctx, x)


class Head(Module):
    """What predicts the tokens that were masked; its last matrix is the embedding."""

    def __init__(self, config: BertConfig, dtype: DType) -> None:
        self.dense = Linear(config.stack.hidden, config.stack.hidden, bias=True, dtype=dtype)
        self.norm: LayerNorm = layer_norm(config.stack, dtype)
        self.bias = Parameter((config.vocabulary,), dtype)
        self.activation: Activation = config.stack.activation

    def forward(self, ctx: ExecutionContext, x: Tensor, embedding: Parameter) -> Tensor:
        """x [B, T, D]: logits f32 [B, T, V]."""
        x = self.norm(ctx, self.activation(ctx, self.dense(ctx, x)))
        return logits_of(ctx, x, embedding, self.bias)


class BertModel(Model[BertConfig]):
    """BERT without a head.

    ``forward(token_ids [B,T], attention_mask [B,T], token_type_ids [B,T])``, all i32, gives ``last_hidden_state``
    [B,T,D] and, where the model has a pooler, ``pooler_output`` [B,D]; a model of sentence-transformers gives
    ``sentence_embedding`` [B,D] in the pooler's place. Results are f32. The mask is 1 for tokens and 0 for padding; a
    row needs a token. What stands in rows of padding says nothing.
    """

    def __init__(self, config: BertConfig, dtype: DType | str = "f32", num_layers: int | None = None) -> None:
        super().__init__(config, dtype, num_layers)
        config, hidden = self.config, self.config.stack.hidden
        self.embeddings = Embeddings(config, self.dtype)
        self.encoder = EncoderStack(config.stack, self.dtype)
        self.pooler = Linear(hidden, hidden, bias=True, dtype=self.dtype) if config.pooler else None

    def forward(
        self, ctx: ExecutionContext, token_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor
    ) -> Tensor:
        """All i32 [B, T]: the last layer's states [B, T, D]."""
        x = self.embeddings(ctx, token_ids, token_type_ids)
        return self.encoder(ctx, x, padding_bias(ctx, attention_mask))

    def results(
        self, ctx: ExecutionContext, token_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor
    ) -> Mapping[str, Tensor]:
        """Those of the entry point ``forward``."""
        ops, pooling = ctx.ops, self.config.pooling
        x = self(ctx, token_ids, attention_mask, token_type_ids)
        results = {"last_hidden_state": ops.cast(x, f32)}
        if pooling is not None:
            results["sentence_embedding"] = pooling(ctx, ops.cast(x, f32), attention_mask)
        elif self.pooler is not None:
            results["pooler_output"] = ops.cast(_pooled(ctx, self.pooler, x), f32)
        return results

    def default_profile(self, batch: int, sequence: int | None, max_sequence: int | None) -> CompileProfile:
        """Returns a profile of the sizes; T is 64 by default, and at most the positions that have embeddings."""
        positions = self.config.positions
        if sequence is None:
            sequence = min(DEFAULT_SEQUENCE, positions)
        check_size("batch", batch)
        check_size("sequence", sequence, positions, "the positions that have embeddings (max_position_embeddings)")
        return encoder_profile(batch, sequence, self.dtype)

    def entry_point(self, profile: CompileProfile) -> EntryPoint:
        """Builds ``forward``."""
        spec = TensorSpec((profile.batch, profile.sequence), "i32")
        inputs = ("token_ids", "attention_mask", "token_type_ids")
        return EntryPoint(profile.name, self.results, tuple(Argument(name, spec) for name in inputs))


class BertForMaskedLM(BertModel):
    """BERT with the head that it was trained with: ``forward`` as of ``BertModel``, with f32 ``logits`` [B,T,V]."""

    def __init__(self, config: BertConfig, dtype: DType | str = "f32", num_layers: int | None = None) -> None:
        super().__init__(config, dtype, num_layers)
        self.head = Head(self.config, self.dtype)

    def results(
        self, ctx: ExecutionContext, token_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor
    ) -> Mapping[str, Tensor]:
        """``logits``."""
        x = self(ctx, token_ids, attention_mask, token_type_ids)
        return {"logits": self.head(ctx, x, self.embeddings.tokens.weight)}

    def tied(self) -> dict[str, str]:
        """The last matrix of the head, and its bias, which some checkpoints store twice."""
        decoder = "cls.predictions.decoder"
        return {f"{decoder}.weight": self.embeddings.tokens.weight.path, f"{decoder}.bias": self.head.bias.path}


class BertForSequenceClassification(BertModel):
    """BERT that tells texts, or pairs of them, apart: ``forward`` as of ``BertModel``, with f32 ``logits`` [B,labels].

    One label is a score, of cross-encoders that rank texts.
    """

    def __init__(self, config: BertConfig, dtype: DType | str = "f32", num_layers: int | None = None) -> None:
        super().__init__(config, dtype, num_layers)
        self.classifier = Linear(self.config.stack.hidden, self.config.labels, bias=True, dtype=self.dtype)

    def results(
        self, ctx: ExecutionContext, token_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor
    ) -> Mapping[str, Tensor]:
        """``logits``."""
        x = self(ctx, token_ids, attention_mask, token_type_ids)
        assert self.pooler is not None  # its family's configurations have one
        return {"logits": ctx.ops.cast(self.classifier(ctx, _pooled(ctx, self.pooler, x)), f32)}


def _pooled(ctx: ExecutionContext, pooler: Linear, x: Tensor) -> Tensor:
    """x [B, T, D]: what the pooler makes of the first token's state, [B, D]."""
    first = ctx.ops.reshape(ctx.ops.slice_axis(x, 1, 0, 1), (x.shape[0], x.shape[2]))
    return ctx.ops.tanh(pooler(ctx, first))


# What a BERT may be that this one is not, and what it is.
_FIXED: Final = {"is_decoder": False, "add_cross_attention": False, "tie_word_embeddings": True}


def _read(fields: ConfigFields, architecture: str, *, pooler: bool, classifies: bool = False) -> BertConfig:
    for name, value in _FIXED.items():
        if fields.boolean(name, value) is not value:
            fields.refuse(name, f"{str(value).lower()}, or no such field")
    fields.choice("position_embedding_type", ("absolute",), "absolute")
    hidden, heads = fields.integer("hidden_size"), fields.integer("num_attention_heads")
    if hidden % heads:
        fields.refuse("hidden_size", f"a multiple of num_attention_heads ({heads})")
    stack = StackConfig(
        hidden=hidden,
        intermediate=fields.integer("intermediate_size"),
        layers=fields.integer("num_hidden_layers"),
        heads=heads,
        norm_eps=fields.number("layer_norm_eps", 1e-12),
        activation=activation_of(fields, default="gelu"),
        post_norm=True,
    )
    return BertConfig(
        architecture=architecture,
        stack=stack,
        vocabulary=fields.integer("vocab_size"),
        positions=fields.integer("max_position_embeddings"),
        types=fields.integer("type_vocab_size", 2),
        pooler=pooler,
        labels=labels_of(fields) if classifies else 0,
    )


_LAYER: Final = "encoder.layers.{}."
_STORED: Final = {
    "embeddings.tokens": "embeddings.word_embeddings",
    "embeddings.positions": "embeddings.position_embeddings",
    "embeddings.types": "embeddings.token_type_embeddings",
    "embeddings.norm": "embeddings.LayerNorm",
    f"{_LAYER}self_attn.q_proj": "encoder.layer.{}.attention.self.query",
    f"{_LAYER}self_attn.k_proj": "encoder.layer.{}.attention.self.key",
    f"{_LAYER}self_attn.v_proj": "encoder.layer.{}.attention.self.value",
    f"{_LAYER}self_attn.o_proj": "encoder.layer.{}.attention.output.dense",
    f"{_LAYER}attention_norm": "encoder.layer.{}.attention.output.LayerNorm",
    f"{_LAYER}mlp.up_proj": "encoder.layer.{}.intermediate.dense",
    f"{_LAYER}mlp.down_proj": "encoder.layer.{}.output.dense",
    f"{_LAYER}mlp_norm": "encoder.layer.{}.output.LayerNorm",
    "pooler": "pooler.dense",
    "head.dense": "cls.predictions.transform.dense",
    "head.norm": "cls.predictions.transform.LayerNorm",
    "head.bias": "cls.predictions.bias",
}
_KEYS: Final = RenamedModules(_STORED, above=("bert.",))
_BUFFERS: Final = ("*embeddings.position_ids", "cls.seq_relationship.*")
_ANY_LAYER: Final = "*encoder.layer.{}"


def _read_classifier(fields: ConfigFields) -> BertConfig:
    return _read(fields, BERT_FOR_SEQUENCE_CLASSIFICATION.architecture, pooler=True, classifies=True)


def _embedding(config: BertConfig, pooling: Pooling) -> BertConfig:
    if pooling.size not in (None, config.stack.hidden):
        raise ConfigError(
            f"1_Pooling/config.json says vectors of {pooling.size} numbers, and config.json hidden_size "
            f"{config.stack.hidden}: fetch both again, from one model"
        )
    return replace(config, pooler=False, pooling=pooling)


BERT: Final = ModelFamily(
    "BertModel",
    "bert",
    lambda fields: _read(fields, "BertModel", pooler=True),
    BertModel,
    lambda config: _KEYS,
    _ANY_LAYER,
    (*_BUFFERS, "cls.predictions.*", "*pooler.dense.*"),
    _embedding,
)
BERT_FOR_MASKED_LM: Final = ModelFamily(
    "BertForMaskedLM",
    "bert",
    lambda fields: _read(fields, "BertForMaskedLM", pooler=False),
    BertForMaskedLM,
    lambda config: _KEYS,
    _ANY_LAYER,
    (*_BUFFERS, "*pooler.dense.*"),
)
BERT_FOR_SEQUENCE_CLASSIFICATION: Final[ModelFamily[BertConfig]] = ModelFamily(
    "BertForSequenceClassification",
    "bert",
    _read_classifier,
    BertForSequenceClassification,
    lambda config: _KEYS,
    _ANY_LAYER,
    _BUFFERS,
)
