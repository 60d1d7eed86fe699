"""Gated DeltaNet: linear attention with a convolution before it and a gated norm after it."""

from dataclasses import dataclass
from enum import Enum

from lang_core import (
    ConfigError,
    DType,
    ExecutionContext,
    Parameter,
    Tensor,
    TensorSpec,
    as_dtype,
    checked_choices,
    f32,
    f64,
)
from transformer_core.layers._cache import CacheLayout, State, StateMixer
from transformer_core.layers._convolution import CausalConv
from transformer_core.layers._linear import Linear
from transformer_core.layers._norm import GatedRMSNorm


class HeadOrder(Enum):
    """Which of K key heads serves value head n of N."""

    CONSECUTIVE = "consecutive"
    """``n // (N / K)``: Hugging Face's."""
    TILED = "tiled"
    """``n % K``: GGUF's, which permutes the value heads."""


@checked_choices
def repeat_heads(ctx: ExecutionContext, x: Tensor, heads: int, order: HeadOrder = HeadOrder.CONSECUTIVE) -> Tensor:
    """Copies shared heads for each of N ``heads``: x [B, T, K, H] as [B, T, N, H].

    Args:
        ctx: context of the ops.
        x: tensor [B, T, K, H].
        heads: N, a multiple of K.
        order: order of the copies: those of a head side by side, or all heads again and again.
    """
    *lead, shared, size = x.shape
    group = heads // shared
    if group == 1:
        return x
    consecutive = order is HeadOrder.CONSECUTIVE
    x = ctx.ops.reshape(x, (*lead, shared, 1, size) if consecutive else (*lead, 1, shared, size))
    x = ctx.ops.broadcast(x, (*lead, shared, group, size) if consecutive else (*lead, group, shared, size))
    return ctx.ops.reshape(x, (*lead, heads, size))


@dataclass(frozen=True, slots=True)
class DeltaState(State):
    """State of a Gated DeltaNet after the tokens so far; its size does not depend on their number.

    Attributes:
        conv: [B, W - 1, C], the convolution's last inputs, of C = 2 K Hk + N Hv channels: q, k and v of key head after
            key head if one projection has them so, else all of q, all of k, all of v.
        delta: f32 or wider [B, N, Hk, Hv].
    """

    conv: Tensor
    delta: Tensor

    @property
    def tensors(self) -> tuple[Tensor, Tensor]:
        """``conv`` [B, W - 1, C] and ``delta`` [B, N, Hk, Hv]."""
        return self.conv, self.delta


@checked_choices
def delta_layout(conv: TensorSpec, delta: TensorSpec, *, by_heads: bool = False) -> CacheLayout:
    """Returns the layout of a ``DeltaState`` with tensors of these specs; ``by_heads``, devices divide the heads."""
    heads = "tp" if by_heads else None
    axes = {"conv_state": ("dp", None, heads), "delta_state": ("dp", heads, None, None)}
    return CacheLayout(DeltaState, {"conv_state": conv, "delta_state": delta}, axes=axes)


@checked_choices
class GatedDeltaNet(StateMixer):
    """Gated DeltaNet (Yang et al. 2024, arXiv:2412.06464) as in Qwen3-Next and Qwen3.5, under Hugging Face's names.

    Queries, keys and values go through a causal convolution and SiLU, queries and keys are brought to length 1, and
    ``gated_delta_rule`` runs with ``g = -exp(A_log) softplus(a + dt_bias)`` and ``beta = logistic(b)``. Its result is
    normed, gated by ``silu(z)`` and projected.

    Args:
        size: D.
        key_heads: K.
        value_heads: N, a multiple of K: the number of states.
        key_size: Hk.
        value_size: Hv.
        taps: W, the width of the convolution.
        norm_eps: eps of the gated norm.
        grouped: whether one projection has q, k, v and z of key head after key head and another one b and a
            (Qwen3-Next), or each has its own, but for q, k and v, which lie one after the other (Qwen3.5).
        order: assignment of key heads to value heads; consecutive with ``grouped``.
        dtype: dtype of the parameters except A_log and dt_bias, which are f32 or wider.

    Raises:
        ConfigError: K does not divide N, or ``grouped`` contradicts ``order``.
    """

    def __init__(
        self,
        size: int,
        key_heads: int,
        value_heads: int,
        key_size: int,
        value_size: int,
        *,
        taps: int = 4,
        norm_eps: float = 1e-6,
        grouped: bool = True,
        order: HeadOrder = HeadOrder.CONSECUTIVE,
        dtype: DType | str = "f32",
    ) -> None:
        if value_heads % key_heads:
            raise ConfigError(f"gated delta net: {key_heads} key heads do not divide {value_heads} value heads")
        if grouped and order is not HeadOrder.CONSECUTIVE:
            raise ConfigError(
                f"gated delta net: one projection for q, k, v and z has consecutive heads, found {order.value}"
            )
        self.key_heads, self.value_heads = key_heads, value_heads
        self.key_size, self.value_size, self.order = key_size, value_size, order
        keys, values = key_heads * key_size, value_heads * value_size
        if grouped:
            self.in_proj_qkvz = Linear(size, 2 * keys + 2 * values, dtype=dtype)
            self.in_proj_ba = Linear(size, 2 * value_heads, dtype=dtype)
        else:
            self.in_proj_qkv = Linear(size, 2 * keys + values, dtype=dtype)
            self.in_proj_z = Linear(size, values, dtype=dtype)
            self.in_proj_b = Linear(size, value_heads, dtype=dtype)
            self.in_proj_a = Linear(size, value_heads, dtype=dtype)
        self.grouped = grouped
        groups = key_heads if grouped else 1
        parts = (key_size, key_size, values // key_heads)
        self.conv1d = CausalConv(2 * keys + values, taps, groups=groups, parts=parts, dtype=dtype)
        self.dtype = as_dtype(dtype)
        self.wide = f64 if self.dtype is f64 else f32
        self.dt_bias = Parameter((value_heads,), self.wide)
        self.A_log = Parameter((value_heads,), self.wide)
        self.norm = GatedRMSNorm(value_size, eps=norm_eps, dtype=dtype)
        self.out_proj = Linear(values, size, dtype=dtype)

    def forward(
        self, ctx: ExecutionContext, x: Tensor, state: DeltaState | None = None, count: Tensor | None = None
    ) -> tuple[Tensor, DeltaState | None]:
        """Runs over the tokens of x [B, T, D], which follow those in ``state``; as of ``StateMixer``."""
        ops = ctx.ops
        batch, tokens, _ = x.shape
        mixed, z, b, a = self._grouped(ctx, x) if self.grouped else self._separate(ctx, x)
        mixed, conv = self.conv1d(ctx, mixed, None if state is None else state.conv, count)
        q, k, v = self._heads(ctx, ops.cast(ops.silu(mixed), self.wide))
        q, k = (
            repeat_heads(ctx, ops.l2_norm(ops.reshape(part, (batch, tokens, -1, self.key_size))), *self._repeat)
            for part in (q, k)
        )
        v = ops.reshape(v, (batch, tokens, self.value_heads, self.value_size))
        q, k, v = ctx.tag(q, "q"), ctx.tag(k, "k"), ctx.tag(v, "v")
        rate = ops.softplus(ops.add(ops.cast(a, self.wide), ctx.parameter(self.dt_bias)))
        g = ops.negate(ops.mul(ops.exp(ctx.parameter(self.A_log)), rate))
        beta = ops.logistic(ops.cast(b, self.wide))
        if count is not None:
            rows = ops.reshape(count, (batch, 1, 1)) if count.ndim else count
            is_real = ops.less(ops.iota((tokens, 1)), rows)
            g, beta = ops.select(is_real, g, 0.0), ops.select(is_real, beta, 0.0)
        g, beta = ctx.tag(g, "g"), ctx.tag(beta, "beta")
        o, delta = ops.gated_delta_rule(q, k, v, g, beta, None if state is None else state.delta)
        o, delta = ctx.tag(o, "heads"), ctx.tag(delta, "state")
        gate = ctx.tag(ops.reshape(z, (batch, tokens, self.value_heads, self.value_size)), "gate")
        normed = self.norm(ctx, ops.cast(o, x.dtype), gate)
        y = self.out_proj(ctx, ops.reshape(normed, (batch, tokens, -1)))
        return y, None if state is None else DeltaState(conv, delta)

    @property
    def _repeat(self) -> tuple[int, HeadOrder]:
        return self.value_heads, self.order

    def _heads(self, ctx: ExecutionContext, mixed: Tensor) -> tuple[Tensor, ...]:
        """Takes q [B, T, .., Hk], k and v [B, T, .., g Hv] from the result of the convolution, [B, T, C]."""
        keys, values = self.key_heads * self.key_size, self.value_heads * self.value_size
        if not self.grouped:
            return ctx.ops.split(mixed, (keys, keys, values), 2)
        by_head = ctx.ops.reshape(mixed, (*mixed.shape[:2], self.key_heads, -1))
        return ctx.ops.split(by_head, self.conv1d.parts, 3)

    def _grouped(self, ctx: ExecutionContext, x: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Projects x by two matrices to q, k and v of head after head [B, T, C], z [B, T, N Hv], b and a [B, T, N].

        Nothing leaves its key head: devices that divide the heads exchange nothing.
        """
        ops = ctx.ops
        lead, group = x.shape[:2], self.value_heads // self.key_heads
        qkvz = ops.reshape(self.in_proj_qkvz(ctx, x), (*lead, self.key_heads, -1))
        values = group * self.value_size
        mixed, z = ops.split(qkvz, (2 * self.key_size + values, values), 3)
        ba = ops.split(ops.reshape(self.in_proj_ba(ctx, x), (*lead, self.key_heads, -1)), (group, group), 3)
        b, a = (ops.reshape(part, (*lead, -1)) for part in ba)
        return ops.reshape(mixed, (*lead, -1)), ops.reshape(z, (*lead, -1)), b, a

    def _separate(self, ctx: ExecutionContext, x: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Projects x by four matrices; results as of ``_grouped``, but all of q, all of k and all of v."""
        return self.in_proj_qkv(ctx, x), self.in_proj_z(ctx, x), self.in_proj_b(ctx, x), self.in_proj_a(ctx, x)

    def cache_layout(self, batch: int, capacity: int) -> CacheLayout:
        """Returns the layout of the state; its size does not depend on the capacity."""
        del capacity
        conv = TensorSpec((batch, self.conv1d.taps - 1, self.conv1d.channels), self.dtype)
        delta = TensorSpec((batch, self.value_heads, self.key_size, self.value_size), self.wide)
        return delta_layout(conv, delta, by_heads=self.grouped)
