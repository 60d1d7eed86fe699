"""Modules around the layers of a decoder with an encoder's names (BERT): the type of tokens, and the head's layer."""

from lang_core import DType, ExecutionContext, Module, Parameter, Tensor
from transformer_core.family._config import DecoderConfig
from transformer_core.family._layer import norm
from transformer_core.family._layer_configs import OuterConfig
from transformer_core.layers._feed_forward import Activation
from transformer_core.layers._linear import Linear


class TokenType(Module):
    """Adds the embedding of the first type of tokens, ``weight`` [1, E], to all tokens.

    Args:
        size: E.
        dtype: dtype of the parameter.
    """

    def __init__(self, size: int, dtype: DType) -> None:
        self.weight = Parameter((1, size), dtype)

    def forward(self, ctx: ExecutionContext, x: Tensor) -> Tensor:
        """Maps x [B, T, E] to [B, T, E]."""
        return ctx.ops.add(x, ctx.parameter(self.weight))


class Transform(Module):
    """``norm(activation(dense(x)))``, before the output projection.

    Args:
        config: configuration of the model.
        activation: activation of the layer.
        outer: its sizes.
        dtype: dtype of the parameters.
    """

    def __init__(self, config: DecoderConfig, activation: Activation, outer: OuterConfig, dtype: DType) -> None:
        self.activation = activation
        self.dense = Linear(config.hidden, outer.transformed, bias=outer.transform_bias, dtype=dtype)
        self.norm = norm(config, dtype, outer.transformed)

    def forward(self, ctx: ExecutionContext, x: Tensor) -> Tensor:
        """Maps x [.., D] to [.., size]."""
        return self.norm(ctx, self.activation(ctx, self.dense(ctx, x)))
