"""Encoder layers, in which every token sees every other."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Self

import numpy as np

from lang_core import DType, ExecutionContext, Module, Parameter, Repeated, Tensor, checked_choices
from transformer_core._config_fields import ConfigFields
from transformer_core.family._packed_texts import PackedTexts
from transformer_core.flow import CompileProfile
from transformer_core.layers._disentangled import DisentangledAttention, DisentangledConfig, relative_rows
from transformer_core.layers._embedding import Embedding
from transformer_core.layers._feed_forward import Activation, FeedForward, SwiGLU
from transformer_core.layers._masks import near_bias, token_distances
from transformer_core.layers._moe import SparseFeedForward
from transformer_core.layers._multi_head_attention import MultiHeadAttention, RopeTables
from transformer_core.layers._norm import LayerNorm, RMSNorm
from transformer_core.layers._rope import rope_tables
from transformer_core.layers._rope_config import RopeConfig, RopeMode
from transformer_core.layers._routing import Routing

_QK_EPS: Final = 1e-6


@checked_choices
@dataclass(frozen=True, slots=True, kw_only=True)
class StackConfig:
    """Configuration of the layers of an encoder.

    Attributes:
        hidden: D.
        intermediate: F.
        layers: L.
        heads: N.
        norm_eps: eps of every norm.
        activation: activation of the feed-forward.
        post_norm: whether norms follow the residual additions (BERT), or precede attention and feed-forward.
        qkv_bias: whether the projections of queries, keys and values have biases.
        key_bias: whether the projection of keys has a bias, if that differs.
        output_bias: whether attention's output projection has a bias.
        mlp_bias: whether the feed-forward's projections have biases.
        down_bias: whether its projection to D has a bias, if that differs.
        norm_bias: whether norms have biases.
        rms_norm: whether norms are RMSNorms (T5).
        scale: factor of attention's scores; 1 / sqrt(H) if None.
        gated_mlp: whether the feed-forward has a gate beside its two projections.
        experts: layers with a mixture of experts in the feed-forward's place; None if there are none.
        first_norm: whether the first layer norms its attention's input (ModernBERT's does not).
        head_size: H; D / N if None.
        rope: RoPE of queries and keys; not rotated if None.
        stored_rope: whether the checkpoint has the frequencies of ``rope`` (ESM).
        rope_rows: rows of the checkpoint's table of sines and cosines, one for each position (RoFormer); 0 if the
            configuration gives them.
        layer: makes a layer of a configuration, index and dtype; ``EncoderLayer`` if None.
        order: layers in the order in which they run, each as often as it is named; all of them once if None (ALBERT
            runs few layers many times).
        states: results, each after so many layers (0 is the input), side by side; the last layer's alone if empty.
        relative: relative positions of disentangled attention; None for plain attention.
        local: layers with local attention; None if there are none.
        layer_scale: whether the results of attention and feed-forward are multiplied by a learned vector.
        qk_norm: whether queries and keys are normed over all heads at once, with eps 1e-6.
    """

    hidden: int
    intermediate: int
    layers: int
    heads: int
    norm_eps: float
    activation: Activation
    post_norm: bool = False
    qkv_bias: bool = True
    key_bias: bool | None = None
    output_bias: bool = True
    mlp_bias: bool = True
    down_bias: bool | None = None
    norm_bias: bool = True
    rms_norm: bool = False
    scale: float | None = None
    gated_mlp: bool = False
    experts: "ExpertLayers | None" = None
    first_norm: bool = True
    head_size: int | None = None
    rope: RopeConfig | None = None
    stored_rope: bool = False
    rope_rows: int = 0
    layer: "Callable[[StackConfig, int, DType], Module] | None" = None
    order: tuple[int, ...] | None = None
    states: tuple[int, ...] = ()
    relative: DisentangledConfig | None = None
    local: "LocalLayers | None" = None
    layer_scale: bool = False
    qk_norm: bool = False

    @property
    def ropes(self) -> tuple[RopeConfig, ...]:
        """Every RoPE of the layers."""
        local = None if self.local is None else self.local.rope
        return tuple(rope for rope in (self.rope, local) if rope is not None)

    def facts(self) -> dict[str, Any]:
        """Returns its entries in the description of a bundle."""
        return {
            "hidden": self.hidden,
            "intermediate": self.intermediate,
            "layers": self.layers,
            "heads": self.heads,
            "head_size": self.head_size or self.hidden // self.heads,
        }


@checked_choices
@dataclass(frozen=True, slots=True)
class ExpertLayers:
    """Layers with a mixture of experts of a feed-forward's size, without gates and biases.

    Attributes:
        layers: numbers of the layers.
        routing: choice of experts.
    """

    layers: frozenset[int]
    routing: Routing


@dataclass(frozen=True, slots=True)
class LocalLayers:
    """Layers with local attention.

    Attributes:
        layers: numbers of the layers.
        distance: greatest distance of a token that is seen, on either side.
        rope: RoPE of these layers.
    """

    layers: frozenset[int]
    distance: int
    rope: RopeConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class EncoderConfig:
    """Base of encoders' configurations.

    Attributes:
        architecture: architecture of a registered family.
        stack: configuration of the layers.
        untied: names of tied tensors (``Model.tied``) that have values of their own in the checkpoint all the same.
    """

    architecture: str
    stack: StackConfig
    untied: tuple[str, ...] = ()

    @property
    def layers(self) -> int:
        """L."""
        return self.stack.layers

    @property
    def stored_layers(self) -> int:
        """L, as every stored layer is run."""
        return self.stack.layers

    def first_layers(self, count: int) -> Self:
        """Returns the configuration of a model of the first layers only."""
        order = self.stack.order
        kept = None if order is None else tuple(index for index in order if index < count)
        return replace(self, stack=replace(self.stack, layers=count, order=kept))

    def facts(self) -> dict[str, Any]:
        """Returns the model's entries in the description of a bundle."""
        return self.stack.facts()


def labels_of(fields: ConfigFields) -> int:
    """Reads the number of classes in ``id2label``; else ``num_labels``, 2 if absent, like transformers."""
    if fields.has("id2label"):
        return len(fields.object("id2label").values) or fields.refuse("id2label", "one name at least")
    return fields.integer("num_labels", 2)


def layer_norm(config: StackConfig, dtype: DType, size: int | None = None) -> LayerNorm | RMSNorm:
    """Makes a norm over D, or over another size."""
    size = size or config.hidden
    if config.rms_norm:
        return RMSNorm(size, eps=config.norm_eps, dtype=dtype)
    return LayerNorm(size, eps=config.norm_eps, bias=config.norm_bias, dtype=dtype)


def encoder_profile(batch: int, tokens: int, dtype: DType) -> CompileProfile:
    """Returns the profile of ``forward`` of a model that caches nothing, for B sequences of T tokens."""
    return CompileProfile(name="forward", batch=batch, sequence=tokens, max_sequence=tokens, dtype=dtype, causal=False)


def stack_attention(config: StackConfig, dtype: DType) -> MultiHeadAttention:
    """Makes the attention of a layer."""
    if config.relative is not None:
        return DisentangledAttention(config.hidden, config.heads, config.relative, dtype=dtype)
    return MultiHeadAttention(
        config.hidden,
        config.heads,
        head_size=config.head_size,
        qkv_bias=config.qkv_bias,
        key_bias=config.key_bias,
        output_bias=config.output_bias,
        scale=config.scale,
        rope_mode=RopeMode.SPLIT_HALF if config.rope is None else config.rope.mode,
        norm_eps=_QK_EPS if config.qk_norm else None,
        dtype=dtype,
    )


def stack_feed_forward(config: StackConfig, dtype: DType, index: int = 0) -> Module:
    """Makes the feed-forward of a layer."""
    sparse = config.experts
    if sparse is not None and index in sparse.layers:
        kinds = {"activation": config.activation, "gated": False}
        return SparseFeedForward(config.hidden, config.intermediate, sparse.routing, **kinds, dtype=dtype)
    sizes, known = (config.hidden, config.intermediate), {"activation": config.activation, "bias": config.mlp_bias}
    if config.gated_mlp:
        return SwiGLU(*sizes, **known, down_bias=config.down_bias, dtype=dtype)
    return FeedForward(*sizes, **known, dtype=dtype)


class EncoderLayer(Module):
    """Layer of attention and a feed-forward, each with its norm and a residual addition."""

    def __init__(self, config: StackConfig, index: int, dtype: DType) -> None:
        self.self_attn = stack_attention(config, dtype)
        self.attention_norm = layer_norm(config, dtype) if index or config.first_norm else None
        self.mlp = stack_feed_forward(config, dtype, index)
        self.mlp_norm = layer_norm(config, dtype)
        self.post_norm = config.post_norm
        self.attention_scale = Parameter((config.hidden,), dtype) if config.layer_scale else None
        self.mlp_scale = Parameter((config.hidden,), dtype) if config.layer_scale else None

    def forward(
        self,
        ctx: ExecutionContext,
        x: Tensor,
        bias: Tensor | None = None,
        tables: RopeTables | None = None,
        key_places: Tensor | None = None,
    ) -> Tensor:
        """Maps x [B, T, D] to [B, T, D]; further arguments as of ``MultiHeadAttention``."""
        x = ctx.tag(x, "input")
        if self.post_norm:
            attended = ctx.tag(self.self_attn(ctx, x, bias, tables, key_places), "self_attn.output")
            x = self._normed(ctx, ctx.ops.add(x, attended))
            forwarded = ctx.tag(self.mlp(ctx, x), "mlp.output")
            return ctx.tag(self.mlp_norm(ctx, ctx.ops.add(x, forwarded)), "output")
        attended = ctx.tag(self.self_attn(ctx, self._normed(ctx, x), bias, tables, key_places), "self_attn.output")
        x = ctx.ops.add(x, _scaled(ctx, attended, self.attention_scale))
        forwarded = ctx.tag(self.mlp(ctx, self.mlp_norm(ctx, x)), "mlp.output")
        return ctx.tag(ctx.ops.add(x, _scaled(ctx, forwarded, self.mlp_scale)), "output")

    def _normed(self, ctx: ExecutionContext, x: Tensor) -> Tensor:
        return x if self.attention_norm is None else self.attention_norm(ctx, x)


def _scaled(ctx: ExecutionContext, x: Tensor, scale: Parameter | None) -> Tensor:
    return x if scale is None else ctx.ops.mul(x, ctx.parameter(scale))


class EncoderStack(Module):
    """Layers of an encoder, each in a block of its own."""

    def __init__(self, config: StackConfig, dtype: DType) -> None:
        self._rope, self._local = config.rope, config.local
        self._order, self._relative = config.order or range(config.layers), config.relative
        self._states = config.states
        relative, size = config.relative, (2 * config.relative.span if config.relative else 0, config.hidden)
        self.rel_embeddings = None if relative is None else Embedding(*size, dtype=dtype)
        stored = config.rope if config.stored_rope else None
        self.inv_freq = None if stored is None else Parameter((stored.rotated // 2,), "f32")
        self.rel_norm = layer_norm(config, dtype) if relative is not None and relative.normed else None
        width = 0 if config.rope is None else config.rope.rotated
        self.rope_table = Parameter((config.rope_rows, width), "f32") if config.rope_rows else None
        layer = config.layer or EncoderLayer
        self.layers = Repeated(config.layers, lambda index: layer(config, index, dtype))

    def forward(
        self,
        ctx: ExecutionContext,
        x: Tensor,
        bias: Tensor | Sequence[Tensor] | None = None,
        texts: PackedTexts | None = None,
        tables: RopeTables | None = None,
    ) -> Tensor:
        """Maps x [B, T, D] to [B, T, D], or to ``states`` side by side.

        Args:
            ctx: context that computes.
            x: [B, T, D].
            bias: added to the scores, broadcast to [B, N, 1, T, T]; or one for each layer.
            texts: texts that x is of, if these are packed; ``bias`` is then broadcast to [1, N, 1, T, S].
            tables: cos and sin of each token, if no RoPE of the configuration gives them.
        """
        local, tokens = self._local, x.shape[1]
        own = None if bias is None or isinstance(bias, Tensor) else bias
        bias = None if own is not None or not isinstance(bias, Tensor) else bias
        places = ctx.ops.iota((tokens,)) if texts is None else texts.token_positions(ctx)
        keys = None if texts is None else texts.places(ctx)
        if tables is None and self.rope_table is not None:
            tables = _stored_tables(ctx, ctx.ops.take(ctx.parameter(self.rope_table), places))
        if tables is None and self._rope is not None:
            stored = None if self.inv_freq is None else ctx.parameter(self.inv_freq)
            tables = rope_tables(ctx, self._rope, places, places.shape[0], stored)
        if self._relative is not None and self.rel_embeddings is not None:
            distances = token_distances(ctx, tokens) if texts is None else texts.distances(ctx)
            positions = self.rel_embeddings(ctx, ctx.ops.iota((2 * self._relative.span,)))
            normed = positions if self.rel_norm is None else self.rel_norm(ctx, positions)
            tables = normed, relative_rows(ctx, self._relative, distances)
        far = near = bias, tables, keys
        if local is not None:
            apart = token_distances(ctx, tokens) if texts is None else texts.distances(ctx)
            seen = near_bias(ctx, apart, local.distance, ctx.ops.constant(0.0, "f32") if bias is None else bias)
            near = seen, _tables(ctx, local.rope, places), keys
        layers, states = list(self.layers), [x]
        for index in self._order:
            layer = layers[index]
            with ctx.block(layer.path):
                known = near if local is not None and index in local.layers else far
                x = layer(ctx, x, *(known if own is None else (own[index], *known[1:])))
            states.append(x)
        return x if not self._states else ctx.ops.concat([states[count] for count in self._states], 2)


def _stored_tables(ctx: ExecutionContext, rows: Tensor) -> RopeTables:
    """Returns the tables of interleaved pairs, of rows f32 [T, R]: sines of the T positions, then cosines."""
    ops, (tokens, rotated) = ctx.ops, rows.shape
    sin, cos = (ops.reshape(half, (tokens, rotated // 2, 1)) for half in ops.split(rows, (rotated // 2,) * 2, 1))
    signed = ops.mul(sin, ops.constant(np.array([-1.0, 1.0], np.float32)))
    doubled = ops.mul(cos, ops.constant(np.ones(2, np.float32)))
    return ops.reshape(doubled, (tokens, rotated)), ops.reshape(signed, (tokens, rotated))


def _tables(ctx: ExecutionContext, rope: RopeConfig | None, positions: Tensor) -> RopeTables | None:
    return None if rope is None else rope_tables(ctx, rope, positions, positions.shape[0])
