"""Mamba-2: a state space with a token-dependent step, with a convolution before it and a gated norm after it."""

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from lang_core import (
    Axes,
    ConfigError,
    DType,
    ExecutionContext,
    Module,
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
from transformer_core.layers._feed_forward import Activation
from transformer_core.layers._gated_delta_net import repeat_heads
from transformer_core.layers._linear import Linear

_AXES: Final[Mapping[str, Axes]] = {"conv_state": ("dp", None, None), "ssm_state": ("dp", None, None, None)}


class GateOrder(enum.Enum):
    """Gate z and norm after the state space."""

    GATE_FIRST = "gate_first"
    """``norm(x * silu(z))``: Mamba-2, Granite 4, Nemotron-H."""
    NORM_FIRST = "norm_first"
    """``norm(x) * silu(z)``."""
    NO_NORM = "no_norm"
    """``x * silu(z)``."""


@checked_choices
@dataclass(frozen=True, slots=True, kw_only=True)
class Mamba2Sizes:
    """Sizes and variant of a Mamba-2.

    Attributes:
        heads: N, the number of states.
        head_size: H.
        groups: number of groups of heads that share B and C, a divisor of N.
        state_size: number of channels of B and C, per group.
        taps: W, the width of the convolution.
        conv_bias: whether the convolution has a bias.
        bias: whether the projection before it has one.
        output_bias: whether the projection after it has one.
        gate: order of gate and norm; a norm goes over the channels of one group.
        activation: activation after the convolution.
        least_step: least step of a token.
        input_scale: factor of the input.
        scales: factors of the parts of the first projection: z, x, B, C and the step.

    Raises:
        ConfigError: the groups do not divide the heads.
    """

    heads: int
    head_size: int
    groups: int
    state_size: int
    taps: int
    conv_bias: bool = True
    bias: bool = False
    output_bias: bool = False
    gate: GateOrder = GateOrder.GATE_FIRST
    activation: Activation = Activation.SILU
    least_step: float = 0.0
    input_scale: float = 1.0
    scales: tuple[float, ...] = (1.0,) * 5

    def __post_init__(self) -> None:
        if self.heads % self.groups:
            raise ConfigError(f"mamba2: {self.groups} groups do not divide {self.heads} heads")

    @property
    def inner(self) -> int:
        """N H."""
        return self.heads * self.head_size

    @property
    def parts(self) -> tuple[int, ...]:
        """Numbers of channels of z, x, B, C and the step."""
        shared = self.groups * self.state_size
        return self.inner, self.inner, shared, shared, self.heads


@dataclass(frozen=True, slots=True)
class Mamba2State(State):
    """State of a Mamba-2 after the tokens so far; its size does not depend on their number.

    Attributes:
        conv: [B, W - 1, C], the convolution's last inputs, of C channels of x, B and C.
        ssm: f32 or wider [B, N, state size, H].
    """

    conv: Tensor
    ssm: Tensor

    @property
    def tensors(self) -> tuple[Tensor, Tensor]:
        """``conv`` [B, W - 1, C] and ``ssm`` [B, N, state size, H]."""
        return self.conv, self.ssm


@checked_choices
class GroupedGatedNorm(Module):
    """RMS norm over each of some groups of channels, before or after a gate ``silu(z)``; in f32 or wider."""

    def __init__(self, size: int, groups: int, order: GateOrder, *, eps: float, dtype: DType | str = "f32") -> None:
        self.weight = Parameter((size,), dtype)
        self.groups, self.order, self.eps = groups, order, eps

    def forward(self, ctx: ExecutionContext, x: Tensor, z: Tensor) -> Tensor:
        """Norms and gates x [.., D] with z [.., D]: [.., D] in x's dtype."""
        ops, wide = ctx.ops, as_dtype(x.dtype).accumulation
        gate, weight = ops.silu(ops.cast(z, wide)), ctx.parameter(self.weight)
        gated = ops.cast(x, wide)
        if self.order is GateOrder.GATE_FIRST:
            gated = ops.mul(gated, gate)
        grouped = ops.reshape(gated, (*x.shape[:-1], self.groups, x.shape[-1] // self.groups))
        normed = ops.mul(ops.reshape(ops.rms_norm(grouped, None, self.eps), x.shape), ops.cast(weight, wide))
        return ops.cast(normed if self.order is GateOrder.GATE_FIRST else ops.mul(normed, gate), x.dtype)


@checked_choices
class Mamba2(StateMixer):
    """Mamba-2 (Dao, Gu 2024, arXiv:2405.21060), under Hugging Face's names.

    ``in_proj`` gives the gate z, x, B, C and the step dt; x, B and C go through a causal convolution and an activation.
    For each head and token, with ``dt = softplus(dt + dt_bias)``: ``S = exp(-exp(A_log) dt) S + dt B x^T`` and
    ``y = C^T S + D x``. That is gated linear attention with queries C, keys B and values ``dt x``: one op computes
    prompts in chunks and a token at a time. y is gated, normed and projected.

    Args:
        size: D of the model.
        sizes: sizes and variant.
        norm_eps: eps of the norm after the gate.
        dtype: dtype of the parameters except A_log, D and dt_bias, which are f32 or wider.
    """

    def __init__(self, size: int, sizes: Mamba2Sizes, *, norm_eps: float = 1e-5, dtype: DType | str = "f32") -> None:
        self.sizes, self.dtype = sizes, as_dtype(dtype)
        self.wide = f64 if self.dtype is f64 else f32
        self.in_proj = Linear(size, sum(sizes.parts), bias=sizes.bias, dtype=dtype)
        self.conv1d = CausalConv(sum(sizes.parts[1:4]), sizes.taps, bias=sizes.conv_bias, dtype=dtype)
        self.dt_bias = Parameter((sizes.heads,), self.wide)
        self.A_log = Parameter((sizes.heads,), self.wide)
        self.D = Parameter((sizes.heads,), self.wide)
        normed = sizes.gate is not GateOrder.NO_NORM
        self.norm = (
            GroupedGatedNorm(sizes.inner, sizes.groups, sizes.gate, eps=norm_eps, dtype=dtype) if normed else None
        )
        self.out_proj = Linear(sizes.inner, size, bias=sizes.output_bias, dtype=dtype)

    def forward(
        self, ctx: ExecutionContext, x: Tensor, state: Mamba2State | None = None, count: Tensor | None = None
    ) -> tuple[Tensor, Mamba2State | None]:
        """Runs over the tokens of x [B, T, D]; see ``StateMixer``."""
        ops, sizes = ctx.ops, self.sizes
        z, mixed, dt = self._projected(ctx, x)
        mixed, conv = self.conv1d(ctx, mixed, None if state is None else state.conv, count)
        mixed = ops.cast(sizes.activation(ctx, mixed), self.wide)
        values, keys, queries = ops.split(mixed, sizes.parts[1:4], 2)
        lead = x.shape[:2]
        values = ops.reshape(values, (*lead, sizes.heads, sizes.head_size))
        keys, queries = (
            repeat_heads(ctx, ops.reshape(part, (*lead, sizes.groups, sizes.state_size)), sizes.heads)
            for part in (keys, queries)
        )
        dt = ctx.tag(self._steps(ctx, dt, count), "dt")
        decay = ops.negate(ops.mul(ops.exp(ctx.parameter(self.A_log)), dt))
        written = ops.mul(values, ops.reshape(dt, (*lead, sizes.heads, 1)))
        before = None if state is None else state.ssm
        y, ssm = ops.gated_delta_rule(queries, keys, written, decay, None, before, 1.0)
        skipped = ops.mul(values, ops.reshape(ctx.parameter(self.D), (sizes.heads, 1)))
        y, ssm = ctx.tag(ops.add(y, skipped), "heads"), ctx.tag(ssm, "state")
        gated = self._gated(ctx, ops.cast(ops.reshape(y, (*lead, sizes.inner)), x.dtype), z)
        return self.out_proj(ctx, gated), None if state is None else Mamba2State(conv, ssm)

    def _projected(self, ctx: ExecutionContext, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Returns z [B, T, N H], x, B and C side by side, and dt [B, T, N]."""
        ops, sizes = ctx.ops, self.sizes
        projected = self.in_proj(ctx, x if sizes.input_scale == 1.0 else ops.mul(x, sizes.input_scale))
        if all(scale == 1.0 for scale in sizes.scales):
            z, mixed, dt = ops.split(projected, (sizes.inner, self.conv1d.channels, sizes.heads), 2)
            return z, mixed, dt
        parts = zip(ops.split(projected, sizes.parts, 2), sizes.scales, strict=True)
        z, *mixed, dt = (ops.mul(part, scale) for part, scale in parts)
        return z, ops.concat(mixed, 2), dt

    def _steps(self, ctx: ExecutionContext, dt: Tensor, count: Tensor | None) -> Tensor:
        """Returns the step of each token and head [B, T, N]; 0, which neither writes nor forgets, for padding."""
        ops = ctx.ops
        steps = ops.softplus(ops.add(ops.cast(dt, self.wide), ctx.parameter(self.dt_bias)))
        steps = ops.maximum(steps, self.sizes.least_step) if self.sizes.least_step > 0 else steps
        if count is None:
            return steps
        rows = ops.reshape(count, (dt.shape[0], 1, 1)) if count.ndim else count
        return ops.select(ops.less(ops.iota((dt.shape[1], 1)), rows), steps, 0.0)

    def _gated(self, ctx: ExecutionContext, y: Tensor, z: Tensor) -> Tensor:
        if self.norm is not None:
            return self.norm(ctx, y, z)
        wide = as_dtype(y.dtype).accumulation
        return ctx.ops.cast(ctx.ops.mul(ctx.ops.cast(y, wide), ctx.ops.silu(ctx.ops.cast(z, wide))), y.dtype)

    def cache_layout(self, batch: int, capacity: int) -> CacheLayout:
        """Returns the layout of the state; its size does not depend on the capacity."""
        del capacity
        sizes = self.sizes
        conv = TensorSpec((batch, sizes.taps - 1, self.conv1d.channels), self.dtype)
        ssm = TensorSpec((batch, sizes.heads, sizes.state_size, sizes.head_size), self.wide)
        return CacheLayout(Mamba2State, {"conv_state": conv, "ssm_state": ssm}, axes=_AXES)
