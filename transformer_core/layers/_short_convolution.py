"""Short convolution with gates before and after it: the mixer of most layers of LFM2."""

from dataclasses import dataclass

from lang_core import DType, ExecutionContext, Tensor, TensorSpec, as_dtype, checked_choices
from transformer_core.layers._cache import CacheLayout, State, StateMixer
from transformer_core.layers._convolution import CausalConv
from transformer_core.layers._linear import Linear


@dataclass(frozen=True, slots=True)
class ConvState(State):
    """State of a convolution after the tokens so far.

    Attributes:
        conv: [B, W - 1, C], its last inputs.
    """

    conv: Tensor

    @property
    def tensors(self) -> tuple[Tensor]:
        """``conv`` [B, W - 1, C]."""
        return (self.conv,)


@checked_choices
class ShortConv(StateMixer):
    """``out_proj(c * conv(b * x))`` with b, c and x from ``in_proj`` (LFM2), under Hugging Face's names.

    Args:
        size: D.
        taps: W, the width of the convolution.
        bias: whether the convolution and both projections have biases.
        dtype: dtype of the parameters.
    """

    def __init__(self, size: int, taps: int, *, bias: bool = False, dtype: DType | str = "f32") -> None:
        self.in_proj = Linear(size, 3 * size, bias=bias, dtype=dtype)
        self.conv = CausalConv(size, taps, bias=bias, dtype=dtype)
        self.out_proj = Linear(size, size, bias=bias, dtype=dtype)
        self.dtype = as_dtype(dtype)

    def forward(
        self, ctx: ExecutionContext, x: Tensor, state: ConvState | None = None, count: Tensor | None = None
    ) -> tuple[Tensor, ConvState | None]:
        """Convolves the tokens of x [B, T, D]; see ``StateMixer``."""
        before, after, x = ctx.ops.split(self.in_proj(ctx, x), (x.shape[2],) * 3, 2)
        mixed, conv = self.conv(ctx, ctx.ops.mul(before, x), None if state is None else state.conv, count)
        y = self.out_proj(ctx, ctx.ops.mul(after, ctx.tag(mixed, "mixed")))
        return y, None if state is None else ConvState(conv)

    def cache_layout(self, batch: int, capacity: int) -> CacheLayout:
        """Returns the layout of the convolution's last inputs."""
        del capacity
        spec = TensorSpec((batch, self.conv.taps - 1, self.conv.channels), self.dtype)
        return CacheLayout(ConvState, {"conv_state": spec}, axes={"conv_state": ("dp", None, None)})
