"""Mamba, first version: a state space with a decay of its own for each channel and state."""

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from lang_core import (
    Axes,
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
from transformer_core.layers._linear import Linear
from transformer_core.layers._norm import RMSNorm, WeightlessRMSNorm

_AXES: Final[Mapping[str, Axes]] = {"conv_state": ("dp", None, None), "ssm_state": ("dp", None, None)}


class StepNorms(enum.Enum):
    """The RMS norms of the step's input, B and C."""

    NONE = "none"
    WEIGHTED = "weighted"
    """Jamba."""
    WEIGHTLESS = "weightless"
    """Falcon-Mamba."""


@checked_choices
@dataclass(frozen=True, slots=True, kw_only=True)
class MambaSizes:
    """Sizes and variant of a Mamba.

    Attributes:
        inner: C, the number of channels.
        state_size: number of states of a channel.
        rank: size of the step's input.
        taps: W, the width of the convolution.
        conv_bias: whether the convolution has a bias.
        bias: whether the first and the last projection have biases.
        activation: activation after the convolution.
        norms: norms of the step's input, B and C.
        norm_eps: eps of these norms.
    """

    inner: int
    state_size: int
    rank: int
    taps: int
    conv_bias: bool = True
    bias: bool = False
    activation: Activation = Activation.SILU
    norms: StepNorms = StepNorms.NONE
    norm_eps: float = 1e-6


@dataclass(frozen=True, slots=True)
class MambaState(State):
    """State of a Mamba after the tokens so far; its size does not depend on their number.

    Attributes:
        conv: [B, W - 1, C], the convolution's last inputs.
        ssm: f32 or wider [B, C, state size].
    """

    conv: Tensor
    ssm: Tensor

    @property
    def tensors(self) -> tuple[Tensor, Tensor]:
        """``conv`` [B, W - 1, C] and ``ssm`` [B, C, state size]."""
        return self.conv, self.ssm


@checked_choices
class Mamba(StateMixer):
    """Mamba (Gu, Dao 2023, arXiv:2312.00752), under Hugging Face's names.

    ``in_proj`` gives x and the gate z; x goes through a causal convolution and an activation, and gives the step's
    input, B and C. For each channel and token, with ``dt = softplus(dt_proj(..))``:
    ``S = exp(-exp(A_log) dt) S + dt x B`` and ``y = S C + D x``, one token after the other. y times ``silu(z)`` is
    projected.

    Args:
        size: D of the model.
        sizes: sizes and variant.
        dtype: dtype of the parameters except A_log, D and the step's bias, which are f32 or wider.
    """

    def __init__(self, size: int, sizes: MambaSizes, *, dtype: DType | str = "f32") -> None:
        self.sizes, self.dtype = sizes, as_dtype(dtype)
        self.wide = f64 if self.dtype is f64 else f32
        self.in_proj = Linear(size, 2 * sizes.inner, bias=sizes.bias, dtype=dtype)
        self.conv1d = CausalConv(sizes.inner, sizes.taps, bias=sizes.conv_bias, dtype=dtype)
        self.x_proj = Linear(sizes.inner, sizes.rank + 2 * sizes.state_size, bias=False, dtype=dtype)
        self.dt_proj = Linear(sizes.rank, sizes.inner, bias=True, dtype=dtype)
        self.A_log = Parameter((sizes.inner, sizes.state_size), self.wide)
        self.D = Parameter((sizes.inner,), self.wide)
        self.out_proj = Linear(sizes.inner, size, bias=sizes.bias, dtype=dtype)
        self.dt_layernorm, self.b_layernorm, self.c_layernorm = (
            self._norm(width) for width in (sizes.rank, sizes.state_size, sizes.state_size)
        )

    def _norm(self, width: int) -> Module | None:
        sizes = self.sizes
        if sizes.norms is StepNorms.NONE:
            return None
        if sizes.norms is StepNorms.WEIGHTLESS:
            return WeightlessRMSNorm(sizes.norm_eps)
        return RMSNorm(width, eps=sizes.norm_eps, dtype=self.dtype)

    def forward(
        self, ctx: ExecutionContext, x: Tensor, state: MambaState | None = None, count: Tensor | None = None
    ) -> tuple[Tensor, MambaState | None]:
        """Runs over the tokens of x [B, T, D]; see ``StateMixer``."""
        ops, sizes = ctx.ops, self.sizes
        mixed, z = ops.split(self.in_proj(ctx, x), (sizes.inner, sizes.inner), 2)
        mixed, conv = self.conv1d(ctx, mixed, None if state is None else state.conv, count)
        mixed = sizes.activation(ctx, mixed)
        parts = ops.split(self.x_proj(ctx, mixed), (sizes.rank, sizes.state_size, sizes.state_size), 2)
        norms = self.dt_layernorm, self.b_layernorm, self.c_layernorm
        low, keys, queries = (
            part if norm is None else norm(ctx, part) for part, norm in zip(parts, norms, strict=True)
        )
        dt = ctx.tag(self._steps(ctx, self.dt_proj(ctx, low), count), "dt")
        mixed, keys, queries = (ops.cast(part, self.wide) for part in (mixed, keys, queries))
        before = None if state is None else state.ssm
        y, ssm = self._scanned(ctx, mixed, dt, keys, queries, before)
        y = ops.add(y, ops.mul(mixed, ctx.parameter(self.D)))
        gated = ops.cast(ops.mul(ctx.tag(y, "channels"), ops.silu(ops.cast(z, self.wide))), x.dtype)
        return self.out_proj(ctx, gated), None if state is None else MambaState(conv, ctx.tag(ssm, "state"))

    def _steps(self, ctx: ExecutionContext, dt: Tensor, count: Tensor | None) -> Tensor:
        """Returns the step of each token and channel [B, T, C]; 0, which neither writes nor forgets, for padding."""
        ops = ctx.ops
        steps = ops.softplus(ops.cast(dt, self.wide))
        if count is None:
            return steps
        rows = ops.reshape(count, (dt.shape[0], 1, 1)) if count.ndim else count
        return ops.select(ops.less(ops.iota((dt.shape[1], 1)), rows), steps, 0.0)

    def _scanned(
        self, ctx: ExecutionContext, x: Tensor, dt: Tensor, keys: Tensor, queries: Tensor, before: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Returns y [B, T, C] and the last state, from x and dt [B, T, C], keys and queries [B, T, states]."""
        ops, (batch, tokens, inner) = ctx.ops, x.shape
        states = self.sizes.state_size
        rates = ops.negate(ops.exp(ctx.parameter(self.A_log)))  # [C, states]
        written = ops.mul(dt, x)
        if before is None:
            before = ops.broadcast(ops.constant(0.0, self.wide), (batch, inner, states))

        def token(state: Tensor, dt: Tensor, new: Tensor, key: Tensor, query: Tensor) -> tuple[Tensor, Tensor]:
            """Takes one token's rows [B, 1, ..]; returns the state and y [B, 1, C]."""
            dt, new = (ops.reshape(part, (batch, inner, 1)) for part in (dt, new))
            state = ops.add(ops.mul(ops.exp(ops.mul(dt, rates)), state), ops.mul(new, key))
            return state, ops.reshape(ops.sum(ops.mul(state, query), 2), (batch, 1, inner))

        if tokens == 1:
            state, y = token(before, dt, written, keys, queries)
            return y, state

        def round_of(index: Tensor, state: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
            rows = (
                ops.dynamic_slice(part, (0, index, 0), (batch, 1, part.shape[2]))
                for part in (dt, written, keys, queries)
            )
            state, row = token(state, *rows)
            return state, ops.dynamic_update_slice(y, row, (0, index, 0))

        empty = ops.broadcast(ops.constant(0.0, self.wide), (batch, tokens, inner))
        state, y = ops.fori_loop(tokens, round_of, (before, empty))
        return y, state

    def cache_layout(self, batch: int, capacity: int) -> CacheLayout:
        """Returns the layout of the state, whose size does not depend on the capacity."""
        del capacity
        sizes = self.sizes
        conv = TensorSpec((batch, sizes.taps - 1, sizes.inner), self.dtype)
        ssm = TensorSpec((batch, sizes.inner, sizes.state_size), self.wide)
        return CacheLayout(MambaState, {"conv_state": conv, "ssm_state": ssm}, axes=_AXES)
