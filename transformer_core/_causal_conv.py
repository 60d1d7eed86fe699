"""The causal convolution before linear attention."""

from lang_core import DType, ExecutionContext, Module, Parameter, Tensor


class CausalConv(Module):
    """Each channel convolved by itself, over its own and earlier tokens. The weight lies as PyTorch's Conv1d has it."""

    def __init__(self, channels: int, taps: int, *, bias: bool = False, dtype: DType | str = "f32") -> None:
        self.weight = Parameter((channels, 1, taps), dtype)
        self.bias = Parameter((channels,), dtype) if bias else None
        self.channels, self.taps = channels, taps

    def forward(
        self, ctx: ExecutionContext, x: Tensor, state: Tensor | None = None, count: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """x [B, T, C] after state [B, W - 1, C]: the same shapes, see ``ops.causal_conv``."""
        weight = ctx.ops.reshape(ctx.parameter(self.weight), (self.channels, self.taps))
        bias = None if self.bias is None else ctx.parameter(self.bias)
        return ctx.ops.causal_conv(x, weight, bias, state, count)
