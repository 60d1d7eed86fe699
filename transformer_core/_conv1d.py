"""Convolutions over time."""

from lang_core import DType, ExecutionContext, Module, Parameter, Tensor


class Conv1d(Module):
    """``y[t] = sum over i of weight[:, :, i] x[stride * t + i - padding] + bias``, with zeros beyond the ends.

    The weight [out, in, width] lies as PyTorch's Conv1d has it.
    """

    def __init__(
        self,
        inputs: int,
        outputs: int,
        width: int,
        *,
        stride: int = 1,
        padding: int = 0,
        bias: bool = True,
        dtype: DType | str = "f32",
    ) -> None:
        self.weight = Parameter((outputs, inputs, width), dtype)
        self.bias = Parameter((outputs,), dtype) if bias else None
        self.stride, self.padding = stride, padding

    def forward(self, ctx: ExecutionContext, x: Tensor) -> Tensor:
        """Maps x [B, T, in] to [B, T', out] with ``T' = (T + 2 padding - width) // stride + 1``."""
        ops = ctx.ops
        kernel = ops.transpose(ctx.parameter(self.weight), (2, 1, 0))  # [width, in, out]
        y = ops.conv(x, kernel, (self.stride,), ((self.padding, self.padding),))
        return y if self.bias is None else ops.add(y, ctx.parameter(self.bias))
