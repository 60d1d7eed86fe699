"""Feed-forward layers."""

import enum
from statistics import NormalDist

from lang_core import ConfigError, DType, ExecutionContext, Module, Tensor, as_dtype, checked_choices
from transformer_core.layers._linear import Linear
from transformer_core.layers._norm import RMSNorm


class Activation(enum.Enum):
    """Activation inside of a feed-forward layer; the values are names of ops, but for the last two."""

    SILU = "silu"
    GELU = "gelu"
    GELU_TANH = "gelu_tanh"
    RELU = "relu"
    RELU_SQUARED = "relu_squared"
    QUICK_GELU = "quick_gelu"
    """``x / (1 + exp(-1.702 x))``, in CLIP."""

    def __call__(self, ctx: ExecutionContext, x: Tensor) -> Tensor:
        """Maps x [..] to [..]."""
        if self is Activation.RELU_SQUARED:
            positive = ctx.ops.relu(x)
            return ctx.ops.mul(positive, positive)
        if self is Activation.QUICK_GELU:
            return ctx.ops.mul(x, ctx.ops.logistic(ctx.ops.mul(x, 1.702)))
        return getattr(ctx.ops, self.value)(x)


@checked_choices
class SwiGLU(Module):
    """``down(silu(gate(x)) * up(x))`` (Shazeer 2020, arXiv:2002.05202), under Hugging Face's names.

    Args:
        size: D.
        inner: F.
        activation: activation of the gate; silu by default.
        bias: whether the projections have biases.
        down_bias: whether the last projection has a bias, if that differs.
        dtype: dtype of the parameters.
        sparsity: share of the gates that are 0, if their inputs are normally distributed (Gemma 3n): the quantile of
            this share is subtracted from each token's inputs, and negative values become 0. None are if it is 0.

    Raises:
        ConfigError: ``sparsity`` is negative, or 1 or more.
    """

    def __init__(
        self,
        size: int,
        inner: int,
        *,
        activation: Activation = Activation.SILU,
        bias: bool = False,
        down_bias: bool | None = None,
        dtype: DType | str = "f32",
        sparsity: float = 0.0,
    ) -> None:
        if not 0 <= sparsity < 1:
            raise ConfigError(f"sparsity of a feed-forward: expected a share of 0 or more, below 1; found {sparsity}")
        self.activation, self.sparsity = activation, sparsity
        self.gate_proj = Linear(size, inner, bias=bias, dtype=dtype)
        self.up_proj = Linear(size, inner, bias=bias, dtype=dtype)
        self.down_proj = Linear(inner, size, bias=bias if down_bias is None else down_bias, dtype=dtype)

    def forward(self, ctx: ExecutionContext, x: Tensor) -> Tensor:
        """Maps x [.., D] to [.., D]; inside, [.., F]."""
        gate = self.gate_proj(ctx, x)
        if self.sparsity > 0:
            gate = self._thinned(ctx, gate)
        return self.down_proj(ctx, ctx.ops.mul(self.activation(ctx, gate), self.up_proj(ctx, x)))

    def _thinned(self, ctx: ExecutionContext, x: Tensor) -> Tensor:
        """Subtracts the quantile of each row of x [.., F], and sets negative values to 0."""
        ops, wide = ctx.ops, ctx.ops.cast(x, as_dtype(x.dtype).accumulation)
        mean = ops.mean(wide, -1, keepdims=True)
        apart = ops.sub(wide, mean)
        deviation = ops.sqrt(ops.mean(ops.mul(apart, apart), -1, keepdims=True))
        quantile = ops.mul(deviation, NormalDist().inv_cdf(self.sparsity))
        return ops.cast(ops.relu(ops.sub(apart, quantile)), x.dtype)


class NormedSwiGLU(SwiGLU):
    """``down(norm(activation(gate(x)) * up(x)))`` (BitNet); arguments as ``SwiGLU``, and the norm's eps."""

    def __init__(
        self,
        size: int,
        inner: int,
        *,
        activation: Activation = Activation.SILU,
        bias: bool = False,
        eps: float = 1e-6,
        dtype: DType | str = "f32",
    ) -> None:
        super().__init__(size, inner, activation=activation, bias=bias, dtype=dtype)
        self.down_norm = RMSNorm(inner, eps=eps, dtype=dtype)

    def forward(self, ctx: ExecutionContext, x: Tensor) -> Tensor:
        """Maps x [.., D] to [.., D]; inside, [.., F]."""
        inner = ctx.ops.mul(self.activation(ctx, self.gate_proj(ctx, x)), self.up_proj(ctx, x))
        return self.down_proj(ctx, self.down_norm(ctx, inner))


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
