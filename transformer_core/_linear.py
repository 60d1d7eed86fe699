"""The linear layer."""

from lang_core import DType, ExecutionContext, Module, Parameter, Tensor


class Linear(Module):
    """``x [.., in] @ weight [out, in].T + bias [out]``. The weight lies output-major, as checkpoints have it."""

    def __init__(self, inputs: int, outputs: int, *, bias: bool = False, dtype: DType | str = "f32") -> None:
        self.weight = Parameter((outputs, inputs), dtype)
        self.bias = Parameter((outputs,), dtype) if bias else None

    def forward(self, ctx: ExecutionContext, x: Tensor) -> Tensor:
        """x [.., in]: [.., out]."""
        bias = None if self.bias is None else ctx.parameter(self.bias)
        return ctx.ops.linear(x, ctx.parameter(self.weight), bias)
