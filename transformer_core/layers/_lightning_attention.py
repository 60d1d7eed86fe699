"""Lightning attention (Qin et al. 2024, arXiv:2401.04658): linear attention with a rate of forgetting per head."""

from dataclasses import dataclass

from lang_core import DType, ExecutionContext, Tensor, TensorSpec, as_dtype, f32, f64
from transformer_core.layers._cache import CacheLayout, State, StateMixer
from transformer_core.layers._feed_forward import Activation
from transformer_core.layers._linear import Linear
from transformer_core.layers._norm import RMSNorm


@dataclass(frozen=True, slots=True)
class LinearState(State):
    """Sum of products of keys and values of the tokens so far; its size does not depend on their number.

    Attributes:
        sums: f32 or wider [B, N, H, H].
    """

    sums: Tensor

    @property
    def tensors(self) -> tuple[Tensor]:
        """``sums`` [B, N, H, H]."""
        return (self.sums,)


class LightningAttention(StateMixer):
    """Linear attention of MiniMax-01, under Hugging Face's names.

    For each head and token: ``S = exp(-rate) S + k v^T``, and ``q^T S`` is the result, where queries, keys and values
    have gone through an activation. All heads are normed at once, gated by a logistic function, and projected.

    Args:
        size: D.
        rates: rate of each of N heads.
        head_size: H.
        activation: activation of queries, keys and values.
        dtype: dtype of the parameters.
    """

    def __init__(
        self, size: int, rates: tuple[float, ...], head_size: int, activation: Activation, *, dtype: DType | str = "f32"
    ) -> None:
        self.rates, self.head_size, self.activation = rates, head_size, activation
        inner = len(rates) * head_size
        self.qkv_proj = Linear(size, 3 * inner, dtype=dtype)
        self.norm = RMSNorm(inner, dtype=dtype)
        self.output_gate = Linear(size, inner, dtype=dtype)
        self.out_proj = Linear(inner, size, dtype=dtype)
        self.wide = f64 if as_dtype(dtype) is f64 else f32

    def forward(
        self, ctx: ExecutionContext, x: Tensor, state: LinearState | None = None, count: Tensor | None = None
    ) -> tuple[Tensor, LinearState | None]:
        """Runs over the tokens of x [B, T, D]; see ``StateMixer``."""
        ops, heads = ctx.ops, len(self.rates)
        batch, tokens, _ = x.shape
        mixed = ops.cast(self.activation(ctx, self.qkv_proj(ctx, x)), self.wide)
        q, k, v = ops.split(ops.reshape(mixed, (batch, tokens, heads, 3 * self.head_size)), (self.head_size,) * 3, 3)
        decay = ops.broadcast(ops.constant([-rate for rate in self.rates], self.wide), (batch, tokens, heads))
        if count is not None:
            rows = ops.reshape(count, (batch, 1, 1)) if count.ndim else count
            real = ops.less(ops.iota((tokens, 1)), rows)
            decay = ops.select(real, decay, 0.0)
            v = ops.select(ops.reshape(real, (*real.shape, 1)), v, 0.0)
        before = None if state is None else state.sums
        y, sums = ops.gated_delta_rule(q, k, v, decay, None, before, 1.0)
        y = ops.cast(ops.reshape(ctx.tag(y, "heads"), (batch, tokens, -1)), x.dtype)
        gated = ops.mul(ops.logistic(self.output_gate(ctx, x)), self.norm(ctx, y))
        return self.out_proj(ctx, gated), None if state is None else LinearState(ctx.tag(sums, "state"))

    def cache_layout(self, batch: int, capacity: int) -> CacheLayout:
        """Returns the layout of the sums; their size does not depend on the capacity."""
        del capacity
        spec = TensorSpec((batch, len(self.rates), self.head_size, self.head_size), self.wide)
        return CacheLayout(LinearState, {"linear_state": spec}, axes={"linear_state": ("dp", None, None, None)})
