"""Feed-forward layers."""

from lang_core import DType, ExecutionContext, Module, Tensor
from transformer_core._linear import Linear


class SwiGLU(Module):
    """``down(silu(gate(x)) * up(x))`` (Shazeer 2020, arXiv:2002.05202), under Hugging Face's names."""

    def __init__(self, size: int, inner: int, *, bias: bool = False, dtype: DType | str = "f32") -> None:
        self.gate_proj = Linear(size, inner, bias=bias, dtype=dtype)
        self.up_proj = Linear(size, inner, bias=bias, dtype=dtype)
        self.down_proj = Linear(inner, size, bias=bias, dtype=dtype)

    def forward(self, ctx: ExecutionContext, x: Tensor) -> Tensor:
        """x [.., D]: [.., D]; inside, [.., F]."""
        gate = ctx.ops.silu(self.gate_proj(ctx, x))
        return self.down_proj(ctx, ctx.ops.mul(gate, self.up_proj(ctx, x)))
