"""BERT (Devlin et al. 2018, arXiv:1810.04805): embeddings of tokens in their context on both sides."""

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
    checked_choices,
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


@checked_choices
@dataclass(frozen=True, slots=True, kw_only=True)
class BertConfig(EncoderConfig):
    """Configuration of a BERT; further attributes as of ``EncoderConfig``.

    Attributes:
        vocabulary: V.
        positions: number of positions with embeddings.
        types: number of token types (first sentence, second sentence).
        pooler: whether a layer computes ``pooler_output`` from the first token's state.
        pooling: pooling of a model of sentence-transformers; else None.
        labels: number of classes; 0 without a classifier.
    """

    vocabulary: int
    positions: int
    types: int
    pooler: bool = False
    pooling: Pooling | None = None
    labels: int = 0

    def facts(self) -> dict[str, Any]:
        """Returns the model's entries in the description of a bundle."""
        pooled = {} if self.pooling is None else {"pooling": self.pooling.facts()}
        sizes = {"vocabulary": self.vocabulary, "positions": self.positions, "types": self.types}
        labels = {"labels": self.labels} if self.labels else {}
        return {**sizes, **self.stack.facts(), **pooled, **labels}


class Embeddings(Module):
    """Sum of the embeddings of token, position and type, normed."""

    def __init__(self, config: BertConfig, dtype: DType) -> None:
        hidden = config.stack.hidden
        self.tokens = Embedding(config.vocabulary, hidden, dtype=dtype)
        self.positions = Embedding(config.positions, hidden, dtype=dtype)
        self.types = Embedding(config.types, hidden, dtype=dtype)
        self.norm = layer_norm(config.stack, dtype)

    def forward(self, ctx: ExecutionContext, token_ids: Tensor, token_type_ids: Tensor) -> Tensor:
        """Embeds token_ids and token_type_ids, i32 [B, T], as [B, T, D]."""
        ops = ctx.ops
        x = ops.add(self.tokens(ctx, token_ids), self.types(ctx, token_type_ids))
        x = ops.add(x, self.positions(ctx, ops.iota((token_ids.shape[1],))))
        return self.norm(ctx, x)


class Head(Module):
    """Head that predicts masked tokens; its last matrix is the embedding."""

    def __init__(self, config: BertConfig, dtype: DType) -> None:
        self.dense = Linear(config.stack.hidden, config.stack.hidden, bias=True, dtype=dtype)
        self.norm: LayerNorm = layer_norm(config.stack, dtype)
        self.bias = Parameter((config.vocabulary,), dtype)
        self.activation: Activation = config.stack.activation

    def forward(self, ctx: ExecutionContext, x: Tensor, embedding: Parameter) -> Tensor:
        """Maps x [B, T, D] to logits f32 [B, T, V]."""
        x = self.norm(ctx, self.activation(ctx, self.dense(ctx, x)))
        return logits_of(ctx, x, embedding, self.bias)


class BertModel(Model[BertConfig]):
    """BERT without a head.

    ``forward(token_ids [B,T], attention_mask [B,T], token_type_ids [B,T])``, all i32, gives ``last_hidden_state``
    [B,T,D] and, where the model has a pooler, ``pooler_output`` [B,D]; a model of sentence-transformers gives
    ``sentence_embedding`` [B,D] in the pooler's place. Results are f32. The mask is 1 for tokens and 0 for padding; a
    row needs a token. Rows of padding are undefined.
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
        """Computes the last layer's states [B, T, D]; all arguments are i32 [B, T]."""
        x = self.embeddings(ctx, token_ids, token_type_ids)
        return self.encoder(ctx, x, padding_bias(ctx, attention_mask))

    def results(
        self, ctx: ExecutionContext, token_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor
    ) -> Mapping[str, Tensor]:
        """Computes the results of the entry point ``forward``."""
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
    """BERT with its masked-language-model head: ``forward`` as of ``BertModel``, with f32 ``logits`` [B,T,V]."""

    def __init__(self, config: BertConfig, dtype: DType | str = "f32", num_layers: int | None = None) -> None:
        super().__init__(config, dtype, num_layers)
        self.head = Head(self.config, self.dtype)

    def results(
        self, ctx: ExecutionContext, token_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor
    ) -> Mapping[str, Tensor]:
        """Computes ``logits``."""
        x = self(ctx, token_ids, attention_mask, token_type_ids)
        return {"logits": self.head(ctx, x, self.embeddings.tokens.weight)}

    def tied(self) -> dict[str, str]:
        """Returns the head's last matrix and its bias, which some checkpoints store twice."""
        decoder = "cls.predictions.decoder"
        return {f"{decoder}.weight": self.embeddings.tokens.weight.path, f"{decoder}.bias": self.head.bias.path}


class BertForSequenceClassification(BertModel):
    """BERT that classifies texts or pairs of texts: ``forward`` as of ``BertModel``, with f32 ``logits`` [B,labels].

    With one label the logit is a score: cross-encoders rank texts by it.
    """

    def __init__(self, config: BertConfig, dtype: DType | str = "f32", num_layers: int | None = None) -> None:
        super().__init__(config, dtype, num_layers)
        self.classifier = Linear(self.config.stack.hidden, self.config.labels, bias=True, dtype=self.dtype)

    def results(
        self, ctx: ExecutionContext, token_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor
    ) -> Mapping[str, Tensor]:
        """Computes ``logits``."""
        x = self(ctx, token_ids, attention_mask, token_type_ids)
        assert self.pooler is not None  # its family's configurations have one
        return {"logits": ctx.ops.cast(self.classifier(ctx, _pooled(ctx, self.pooler, x)), f32)}


def _pooled(ctx: ExecutionContext, pooler: Linear, x: Tensor) -> Tensor:
    """Applies the pooler to the first token's state of x [B, T, D]: [B, D]."""
    first = ctx.ops.reshape(ctx.ops.slice_axis(x, 1, 0, 1), (x.shape[0], x.shape[2]))
    return ctx.ops.tanh(pooler(ctx, first))


# Supported values of fields that select other variants of BERT.
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
