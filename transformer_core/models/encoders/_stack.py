"""Encoder layers, in which every token sees every other."""

from dataclasses import dataclass, replace
from typing import Any, Self

from lang_core import DType, ExecutionContext, Module, Repeated, Tensor, checked_choices
from transformer_core._config_fields import ConfigFields
from transformer_core._feed_forward import Activation, FeedForward
from transformer_core._multi_head_attention import MultiHeadAttention
from transformer_core._norm import LayerNorm
from transformer_core.flow import CompileProfile


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
        qkv_bias: whether the projections of queries, keys and values have biases; other projections have.
        key_bias: whether the projection of keys has a bias, where that differs.
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

    def facts(self) -> dict[str, Any]:
        """Returns its entries in the description of a bundle."""
        return {
            "hidden": self.hidden,
            "intermediate": self.intermediate,
            "layers": self.layers,
            "heads": self.heads,
            "head_size": self.hidden // self.heads,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class EncoderConfig:
    """Base of encoders' configurations.

    Attributes:
        architecture: architecture of a registered family.
        stack: configuration of the layers.
    """

    architecture: str
    stack: StackConfig

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
        return replace(self, stack=replace(self.stack, layers=count))

    def facts(self) -> dict[str, Any]:
        """Returns the model's entries in the description of a bundle."""
        return self.stack.facts()


def labels_of(fields: ConfigFields) -> int:
    """Reads the number of classes in ``id2label``; else ``num_labels``, 2 where absent, like transformers."""
    if fields.has("id2label"):
        return len(fields.object("id2label").values) or fields.refuse("id2label", "one name at least")
    return fields.integer("num_labels", 2)


def layer_norm(config: StackConfig, dtype: DType) -> LayerNorm:
    """Makes a norm over D."""
    return LayerNorm(config.hidden, eps=config.norm_eps, dtype=dtype)


def encoder_profile(batch: int, tokens: int, dtype: DType) -> CompileProfile:
    """Returns the profile of ``forward`` of a model that caches nothing, for B sequences of T tokens."""
    return CompileProfile(name="forward", batch=batch, sequence=tokens, max_sequence=tokens, dtype=dtype, causal=False)


class EncoderLayer(Module):
    """Layer of attention and a feed-forward, each with its norm and a residual addition."""

    def __init__(self, config: StackConfig, dtype: DType) -> None:
        self.self_attn = MultiHeadAttention(
            config.hidden, config.heads, qkv_bias=config.qkv_bias, key_bias=config.key_bias, dtype=dtype
        )
        self.attention_norm = layer_norm(config, dtype)
        self.mlp = FeedForward(config.hidden, config.intermediate, activation=config.activation, dtype=dtype)
        self.mlp_norm = layer_norm(config, dtype)
        self.post_norm = config.post_norm

    def forward(self, ctx: ExecutionContext, x: Tensor, bias: Tensor | None = None) -> Tensor:
        """Maps x [B, T, D] to [B, T, D]; ``bias`` is broadcast to [B, N, 1, T, T]."""
        x = ctx.tag(x, "input")
        if self.post_norm:
            attended = ctx.tag(self.self_attn(ctx, x, bias), "self_attn.output")
            x = self.attention_norm(ctx, ctx.ops.add(x, attended))
            forwarded = ctx.tag(self.mlp(ctx, x), "mlp.output")
            return ctx.tag(self.mlp_norm(ctx, ctx.ops.add(x, forwarded)), "output")
        attended = ctx.tag(self.self_attn(ctx, self.attention_norm(ctx, x), bias), "self_attn.output")
        x = ctx.ops.add(x, attended)
        forwarded = ctx.tag(self.mlp(ctx, self.mlp_norm(ctx, x)), "mlp.output")
        return ctx.tag(ctx.ops.add(x, forwarded), "output")


class EncoderStack(Module):
    """Layers of an encoder, each in a block of its own."""

    def __init__(self, config: StackConfig, dtype: DType) -> None:
        self.layers = Repeated(config.layers, lambda index: EncoderLayer(config, dtype))

    def forward(self, ctx: ExecutionContext, x: Tensor, bias: Tensor | None = None) -> Tensor:
        """Maps x [B, T, D] to [B, T, D]; ``bias`` is broadcast to [B, N, 1, T, T]."""
        for layer in self.layers:
            with ctx.block(layer.path):
                x = layer(ctx, x, bias)
        return x
