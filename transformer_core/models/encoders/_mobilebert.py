"""MobileBERT (Sun et al. 2020, arXiv:2004.02984): narrow layers between bottlenecks, and embeddings of three tokens."""

from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from lang_core import DType, ExecutionContext, Module, Parameter, Repeated, Tensor, WeightSource, checked_choices
from transformer_core._config_fields import ConfigFields
from transformer_core.checkpoints import Recipe, RecipeOf, RenamedModules, Transposed
from transformer_core.family._fields import activation_of
from transformer_core.family._packed_texts import PackedTexts
from transformer_core.layers._attention import fused_attention
from transformer_core.layers._embedding import Embedding, TokenEmbedding
from transformer_core.layers._feed_forward import Activation, FeedForward
from transformer_core.layers._linear import Linear, VocabularyLinear
from transformer_core.layers._logits import logits_of
from transformer_core.layers._norm import LayerNorm
from transformer_core.models.encoders._bert import BERT_NAMES, read_bert
from transformer_core.models.encoders._bert_kin import ALIASES, PREDICTIONS
from transformer_core.models.encoders._stack import StackConfig
from transformer_core.models.encoders._text import HeadConfig, TextConfig
from transformer_core.models.encoders._text_families import next_sentence_family, text_families
from transformer_core.models.encoders._text_heads import Head, TextForMaskedLM

_TORCH_EPS: Final = 1e-5  # of norms that transformers makes without the configuration's


@checked_choices
@dataclass(frozen=True, slots=True, kw_only=True)
class BottleneckConfig:
    """Configuration of the bottlenecks.

    Attributes:
        size: size of the states inside of a layer.
        used: whether there are bottlenecks; ``size`` is D without.
        of_attention: whether queries, keys and values are projected from the layer's own bottleneck.
        shared: whether queries and keys are projected from a bottleneck of their own.
        feed_forwards: number of feed-forwards in a layer.
        normed: whether there are norms, and not scales and biases in their places.
        trigrams: whether a token's embedding is made of its neighbours', too.
    """

    size: int
    used: bool = True
    of_attention: bool = False
    shared: bool = True
    feed_forwards: int = 4
    normed: bool = False
    trigrams: bool = True


class Affine(Module):
    """Scale and bias in a norm's place."""

    def __init__(self, size: int, dtype: DType) -> None:
        self.weight = Parameter((size,), dtype)
        self.bias = Parameter((size,), dtype)

    def forward(self, ctx: ExecutionContext, x: Tensor) -> Tensor:
        """Maps x [.., D] to [.., D]."""
        return ctx.ops.add(ctx.ops.mul(x, ctx.parameter(self.weight)), ctx.parameter(self.bias))


def _norm(config: BottleneckConfig, size: int, eps: float, dtype: DType) -> LayerNorm | Affine:
    return LayerNorm(size, eps=eps, dtype=dtype) if config.normed else Affine(size, dtype)


class _Projected(Module):
    """A matrix, and a norm of what it gives and of what is added to that."""

    def __init__(self, config: BottleneckConfig, inputs: int, outputs: int, eps: float, dtype: DType) -> None:
        self.dense = Linear(inputs, outputs, bias=True, dtype=dtype)
        self.norm = _norm(config, outputs, eps, dtype)

    def forward(self, ctx: ExecutionContext, x: Tensor, added: Tensor | None = None) -> Tensor:
        x = self.dense(ctx, x)
        return self.norm(ctx, x if added is None else ctx.ops.add(x, added))


class _Attention(Module):
    """Attention with inputs of their own for queries and keys, and for values; before its output projection."""

    def __init__(self, config: StackConfig, narrow: BottleneckConfig, dtype: DType) -> None:
        size = narrow.size
        values = size if narrow.of_attention or not narrow.used else config.hidden
        self.heads, self.head_size = config.heads, size // config.heads
        self.q_proj = Linear(size, size, bias=True, dtype=dtype)
        self.k_proj = Linear(size, size, bias=True, dtype=dtype)
        self.v_proj = Linear(values, size, bias=True, dtype=dtype)

    def forward(self, ctx: ExecutionContext, x: Tensor, values: Tensor, bias: Tensor | None) -> Tensor:
        ops, (batch, tokens, _) = ctx.ops, x.shape
        apart = (batch, tokens, self.heads, self.head_size)
        q, k, v = (
            ops.transpose(ops.reshape(matrix(ctx, one), apart), (0, 2, 1, 3))
            for matrix, one in ((self.q_proj, x), (self.k_proj, x), (self.v_proj, values))
        )
        q = ops.reshape(q, (batch, self.heads, 1, tokens, self.head_size))
        heads = ops.reshape(fused_attention(ctx, q, k, v, bias), (batch, self.heads, tokens, self.head_size))
        return ops.reshape(ops.transpose(heads, (0, 2, 1, 3)), (batch, tokens, self.heads * self.head_size))


class _ResidualFeedForward(FeedForward):
    """Feed-forward with a residual addition and a norm."""

    def __init__(self, config: StackConfig, narrow: BottleneckConfig, dtype: DType) -> None:
        super().__init__(narrow.size, config.intermediate, activation=config.activation, bias=True, dtype=dtype)
        self.norm = _norm(narrow, narrow.size, config.norm_eps, dtype)

    def forward(self, ctx: ExecutionContext, x: Tensor) -> Tensor:
        return self.norm(ctx, ctx.ops.add(super().forward(ctx, x), x))


class BottleneckLayer(Module):
    """Layer of attention and feed-forwards of a small size, between projections from D and to D."""

    def __init__(self, narrow: BottleneckConfig, config: StackConfig, index: int, dtype: DType) -> None:
        size, eps = narrow.size, config.norm_eps
        self._narrow = narrow
        self.self_attn = _Attention(config, narrow, dtype)
        self.attended = _Projected(narrow, size, size, eps, dtype)
        self.mlp = FeedForward(size, config.intermediate, activation=config.activation, bias=True, dtype=dtype)
        self.mlp_norm = _norm(narrow, size, _TORCH_EPS, dtype)
        self.inner = _Projected(narrow, config.hidden, size, eps, dtype) if narrow.used else None
        own = narrow.used and narrow.shared and not narrow.of_attention
        self.inner_attention = _Projected(narrow, config.hidden, size, eps, dtype) if own else None
        self.outer = _Projected(narrow, size, config.hidden, eps, dtype) if narrow.used else None
        self.more = Repeated(narrow.feed_forwards - 1, lambda _: _ResidualFeedForward(config, narrow, dtype))

    def forward(
        self,
        ctx: ExecutionContext,
        x: Tensor,
        bias: Tensor | None = None,
        tables: Any = None,
        key_places: Any = None,
    ) -> Tensor:
        """Maps x [B, T, D] to [B, T, D]; ``tables`` and ``key_places`` are not read."""
        x = ctx.tag(x, "input")
        residual = x if self.inner is None else self.inner(ctx, x)
        asked = residual if self._narrow.of_attention else x
        asked = asked if self.inner_attention is None else self.inner_attention(ctx, x)
        values = residual if self._narrow.of_attention else x
        attended = self.self_attn(ctx, asked, values, bias)
        inner = self.attended(ctx, attended, residual)
        for feed_forward in self.more:
            inner = feed_forward(ctx, inner)
        inner = self.mlp_norm(ctx, ctx.ops.add(self.mlp(ctx, inner), inner))
        return ctx.tag(inner if self.outer is None else self.outer(ctx, inner, x), "output")


class TrigramEmbeddings(Module):
    """Sum of the embeddings of position and type and of a projection of a token's and its neighbours'."""

    def __init__(self, narrow: BottleneckConfig, size: int, config: TextConfig, dtype: DType) -> None:
        hidden = config.stack.hidden
        self._trigrams = narrow.trigrams
        self.tokens = TokenEmbedding(config.vocabulary, size, dtype=dtype)
        self.positions = Embedding(config.positions, hidden, dtype=dtype)
        self.types = Embedding(config.types, hidden, dtype=dtype)
        self.norm = _norm(narrow, hidden, _TORCH_EPS, dtype)
        mapped = narrow.trigrams or size != hidden
        self.project = Linear(size * (3 if narrow.trigrams else 1), hidden, bias=True, dtype=dtype) if mapped else None

    def forward(
        self,
        ctx: ExecutionContext,
        token_ids: Tensor,
        token_type_ids: Tensor | None = None,
        texts: PackedTexts | None = None,
        attention_mask: Tensor | None = None,
    ) -> Tensor:
        """Embeds token_ids and token_type_ids, i32 [B, T], as [B, T, D]; types are 0 if they are not given."""
        ops, x = ctx.ops, self.tokens(ctx, token_ids)
        if self._trigrams:
            batch, tokens, size = x.shape
            if attention_mask is not None:  # behind a text there is nothing, not padding
                is_real = ops.reshape(ops.not_equal(attention_mask, 0), (batch, tokens, 1))
                x = ops.select(is_real, x, 0.0)
            none = ops.mul(ops.slice(x, (0, 0, 0), (batch, 1, size)), 0.0)
            after = ops.concat((ops.slice(x, (0, 1, 0), (batch, tokens, size)), none), 1)
            before = ops.concat((none, ops.slice(x, (0, 0, 0), (batch, tokens - 1, size))), 1)
            x = ops.concat((after, x, before), 2)
        x = x if self.project is None else self.project(ctx, x)
        types = ops.mul(ops.iota((1,)), 0) if token_type_ids is None else token_type_ids
        x = ops.add(x, self.positions(ctx, ops.iota((token_ids.shape[1],))))
        return self.norm(ctx, ops.add(x, self.types(ctx, types)))


class _WiderHead(Head):
    """Head with a last matrix that is the embedding, and further columns beside it."""

    def __init__(self, config: TextConfig, head: HeadConfig, size: int, dtype: DType) -> None:
        super().__init__(config, head, dtype)
        self._size = size
        own = head.aliases[0] in config.untied
        self.decoder = VocabularyLinear(size, config.vocabulary, dtype=dtype) if own else None
        self.extra = (
            Parameter((config.vocabulary, config.stack.hidden - size), dtype) if config.stack.hidden > size else None
        )

    def logits(self, ctx: ExecutionContext, x: Tensor, embedding: Parameter) -> Tensor:
        """Maps x [B, T, D] to logits f32 [B, T, V]."""
        states, embedding = self(ctx, x), embedding if self.decoder is None else self.decoder.weight
        if self.extra is None:
            return logits_of(ctx, states, embedding, self.bias)
        first, rest = ctx.ops.split(states, (self._size, states.shape[2] - self._size), 2)
        return ctx.ops.add(logits_of(ctx, first, embedding, self.bias), logits_of(ctx, rest, self.extra))


class MobileBertForMaskedLM(TextForMaskedLM):
    """Encoder that predicts masked tokens, with a wider head; otherwise as its base class."""

    def __init__(self, config: TextConfig, dtype: DType | str = "f32", num_layers: int | None = None) -> None:
        super().__init__(config, dtype, num_layers)
        assert config.head is not None  # its families' configurations have one
        size = self.embeddings.tokens.weight.spec.shape[1]
        self.head = _WiderHead(self.config, config.head, size, self.dtype)


_LAYER: Final = "encoder.layers.{}."
_STORED: Final = "encoder.layer.{}."
_EXTRA: Final = "head.extra"


def _names(feed_forwards: int) -> RenamedModules:
    more = {
        f"{_LAYER}more.{index}.{name}": f"{_STORED}ffn.{index}.{stored}"
        for index in range(feed_forwards - 1)
        for name, stored in (
            ("up_proj", "intermediate.dense"),
            ("down_proj", "output.dense"),
            ("norm", "output.LayerNorm"),
        )
    }
    projected = {
        "attended": "attention.output",
        "inner": "bottleneck.input",
        "inner_attention": "bottleneck.attention",
        "outer": "output.bottleneck",
    }
    parts = {
        f"{_LAYER}{name}.{part}": f"{_STORED}{stored}.{kind}"
        for name, stored in projected.items()
        for part, kind in (("dense", "dense"), ("norm", "LayerNorm"))
    }
    return RenamedModules(
        {
            **BERT_NAMES,
            **PREDICTIONS,
            **more,
            **parts,
            "embeddings.project": "embeddings.embedding_transformation",
            _EXTRA: "cls.predictions.dense.weight",
        },
        above=("mobilebert.",),
    )


def _stored(config: TextConfig) -> RecipeOf:
    narrow = bottleneck_of(config)
    keys = _names(narrow.feed_forwards)

    def recipe(name: str, shape: tuple[int, ...], source: WeightSource) -> Recipe | None:
        if name != _EXTRA:
            return keys(name, shape, source)
        return Transposed(keys.key(name, source), (shape[1], shape[0]), 0, shape[0])

    return recipe


def bottleneck_of(config: TextConfig) -> BottleneckConfig:
    """Returns the bottlenecks of a MobileBERT's layers."""
    assert isinstance(config.stack.layer, partial)  # its reader makes one
    return config.stack.layer.args[0]


def _read(fields: ConfigFields, architecture: str, **known: Any) -> TextConfig:
    hidden, heads = fields.integer("hidden_size", 512), fields.integer("num_attention_heads", 4)
    used = fields.boolean("use_bottleneck", True)
    size = fields.integer("intra_bottleneck_size", 128) if used else hidden
    if size % heads:
        name = "intra_bottleneck_size" if used else "hidden_size"
        fields.refuse(name, f"a multiple of num_attention_heads ({heads})")
    shared, own = fields.boolean("key_query_shared_bottleneck", True), fields.boolean("use_bottleneck_attention", False)
    if used and not shared and not own and size != hidden:
        fields.refuse("key_query_shared_bottleneck", "true, unless intra_bottleneck_size is hidden_size")
    if known.get("pooler") and not fields.boolean("classifier_activation", True):
        fields.refuse("classifier_activation", "true, or no such field")
    narrow = BottleneckConfig(
        size=size,
        used=used,
        of_attention=used and own,
        shared=shared,
        feed_forwards=fields.integer("num_feedforward_networks", 4),
        normed=fields.choice("normalization_type", ("no_norm", "layer_norm"), "no_norm") == "layer_norm",
        trigrams=fields.boolean("trigram_input", True),
    )
    width = fields.integer("embedding_size", 128)
    if width > hidden:
        fields.refuse("embedding_size", f"hidden_size ({hidden}) at most")
    stack = StackConfig(
        hidden=hidden,
        intermediate=fields.integer("intermediate_size", 512),
        layers=fields.integer("num_hidden_layers", 24),
        heads=heads,
        norm_eps=fields.number("layer_norm_eps", 1e-12),
        activation=_activation(fields),
        head_size=size // heads,
        post_norm=True,
        layer=partial(BottleneckLayer, narrow),
    )
    return read_bert(fields, architecture, stack=stack, embed=partial(TrigramEmbeddings, narrow, width), **known)


def _activation(fields: ConfigFields) -> Activation:
    return activation_of(fields, default="relu")


def _head(fields: ConfigFields) -> HeadConfig:
    return HeadConfig(_activation(fields), aliases=ALIASES)


MOBILEBERT: Final = (
    *text_families(
        "MobileBert",
        "mobilebert",
        _read,
        _stored,
        _head,
        ("*embeddings.position_ids", "cls.seq_relationship.*"),
        masked_lm=MobileBertForMaskedLM,
    ),
    next_sentence_family("MobileBert", "mobilebert", _read, _stored, ("*embeddings.position_ids", "cls.predictions.*")),
)
