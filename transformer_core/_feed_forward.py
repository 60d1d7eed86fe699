"""Feed-forward layers."""

import enum

from lang_core import DType, ExecutionContext, Module, Tensor, checked_choices
from transformer_core._linear import Linear


class Activation(enum.Enum):
    """Activation inside of a feed-forward layer; the values are names of ops, but for the last."""

    SILU = "silu"
    GELU = "gelu"
    GELU_TANH = "gelu_tanh"
    RELU = "relu"
    RELU_SQUARED = "relu_squared"

    def __call__(self, ctx: ExecutionContext, x: Tensor) -> Tensor:
        """Maps x [..] to [..]."""
        if self is Activation.RELU_SQUARED:
            positive = ctx.ops.relu(x)
            return ctx.ops.mul(positive, positive)
        return getattr(ctx.ops, self.value)(x)


@checked_choices
class SwiGLU(Module):
    """``down(silu(gate(x)) * up(x))`` (Shazeer 2020, arXiv:2002.05202), under Hugging Face's names.

    Args:
        size: D.
        inner: F.
        activation: activation of the gate; silu by default.
        bias: whether the projections have biases.
        dtype: dtype of the parameters.
    """

    def __init__(
        self,
        size: int,
        inner: int,
        *,
        activation: Activation = Activation.SILU,
        bias: bool = False,
        dtype: DType | str = "f32",
    ) -> None:
        self.activation = activation
        self.gate_proj = Linear(size, inner, bias=bias, dtype=dtype)
        self.up_proj = Linear(size, inner, bias=bias, dtype=dtype)
        self.down_proj = Linear(inner, size, bias=bias, dtype=dtype)

    def forward(self, ctx: ExecutionContext, x: Tensor) -> Tensor:
        """Maps x [.., D] to [.., D]; inside, [.., F]."""
        gate = self.activation(ctx, self.gate_proj(ctx, x))
        return self.down_proj(ctx, ctx.ops.mul(gate, self.up_proj(ctx, x)))


@checked_choices
class FeedForward(Module):
    """``down(activation(up(x)))`` (Vaswani et al. 2017, arXiv:1706.03762, section 3.3); arguments as ``SwiGLU``."""

    def __init__(
        self,
        size: int,
        inner: int,
        *,
        activation: Activation = Activation.GELU,
        bias: bool = True,
        dtype: DType | str = "f32",
    ) -> None:
        self.activation = activation
        self.up_proj = Linear(size, inner, bias=bias, dtype=dtype)
        self.down_proj = Linear(inner, size, bias=bias, dtype=dtype)

    def forward(self, ctx: ExecutionContext, x: Tensor) -> Tensor:
        """Maps x [.., D] to [.., D]; inside, [.., F]."""
        return self.down_proj(ctx, self.activation(ctx, self.up_proj(ctx, x)))
