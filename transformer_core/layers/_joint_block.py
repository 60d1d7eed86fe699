"""A block of several streams of tokens that meet in attention (diffusion transformers)."""

from collections.abc import Sequence

from lang_core import ConfigError, DType, ExecutionContext, Module, OpError, Tensor
from transformer_core.layers._attention import grouped_attention
from transformer_core.layers._feed_forward import Activation, FeedForward
from transformer_core.layers._linear import Linear
from transformer_core.layers._norm import RMSNorm


class Modulation(Module):
    """Shifts, scales and gates of a condition: ``linear(silu(c))`` (Peebles, Xie 2022, arXiv:2212.09748).

    Args:
        condition: size of c.
        size: D.
        parts: number of shifts, scales and gates together.
        dtype: dtype of the parameters.
    """

    def __init__(self, condition: int, size: int, parts: int, *, dtype: DType | str = "f32") -> None:
        self.linear = Linear(condition, parts * size, bias=True, dtype=dtype)
        self.size, self.parts = size, parts

    def forward(self, ctx: ExecutionContext, condition: Tensor) -> tuple[Tensor, ...]:
        """Maps condition [B, C] to ``parts`` tensors [B, 1, D]: shift, scale, gate, and again."""
        made = self.linear(ctx, ctx.ops.silu(condition))
        apart = ctx.ops.reshape(made, (condition.shape[0], 1, self.parts * self.size))
        return tuple(ctx.ops.split(apart, (self.size,) * self.parts, 2))


class JointStream(Module):
    """Modules of one stream: projections, feed-forward and modulation; norms without weights."""

    def __init__(
        self,
        size: int,
        heads: int,
        inner: int,
        condition: int,
        *,
        ends: bool,
        norm_eps: float,
        qk_norm_eps: float | None,
        dtype: DType | str,
    ) -> None:
        self.heads, self.head_size, self.norm_eps = heads, size // heads, norm_eps
        self.modulation = Modulation(condition, size, 2 if ends else 6, dtype=dtype)
        self.q_proj, self.k_proj, self.v_proj = (Linear(size, size, bias=True, dtype=dtype) for _ in range(3))
        self.q_norm, self.k_norm = (
            None if qk_norm_eps is None else RMSNorm(size // heads, eps=qk_norm_eps, dtype=dtype) for _ in range(2)
        )
        self.o_proj = None if ends else Linear(size, size, bias=True, dtype=dtype)
        self.mlp = None if ends else FeedForward(size, inner, activation=Activation.GELU_TANH, dtype=dtype)

    def projected(self, ctx: ExecutionContext, x: Tensor, shift: Tensor, scale: Tensor) -> tuple[Tensor, ...]:
        """Computes queries, keys and values [B, N, T, H] of x [B, T, D]."""
        normed = self._modulated(ctx, x, shift, scale)
        q, k, v = (self._heads(ctx, project(ctx, normed)) for project in (self.q_proj, self.k_proj, self.v_proj))
        if self.q_norm is not None and self.k_norm is not None:
            q, k = self.q_norm(ctx, q), self.k_norm(ctx, k)
        return q, k, v

    def finished(self, ctx: ExecutionContext, x: Tensor, heads: Tensor, modulation: Sequence[Tensor]) -> Tensor:
        """Adds attention's result, heads [B, N, T, H], and the feed-forward to x [B, T, D]; six modulations."""
        if self.o_proj is None or self.mlp is None:
            return x
        ops = ctx.ops
        _, _, gate, shift, scale, mlp_gate = modulation
        attended = self.o_proj(ctx, ops.reshape(ops.transpose(heads, (0, 2, 1, 3)), x.shape))
        x = ops.add(x, ops.mul(gate, attended))
        return ops.add(x, ops.mul(mlp_gate, self.mlp(ctx, self._modulated(ctx, x, shift, scale))))

    def _modulated(self, ctx: ExecutionContext, x: Tensor, shift: Tensor, scale: Tensor) -> Tensor:
        """Computes ``norm(x) * (1 + scale) + shift``; the norm lacks weights."""
        normed = ctx.ops.layer_norm(x, eps=self.norm_eps)
        return ctx.ops.add(ctx.ops.mul(normed, ctx.ops.add(scale, 1.0)), shift)

    def _heads(self, ctx: ExecutionContext, x: Tensor) -> Tensor:
        """Maps x [B, T, D] to [B, N, T, H]."""
        apart = ctx.ops.reshape(x, (*x.shape[:2], self.heads, self.head_size))
        return ctx.ops.transpose(apart, (0, 2, 1, 3))


class JointBlock(Module):
    """Block in which every token of several streams attends to those of all streams (MM-DiT).

    Each stream has its own weights. Two streams, of an image and of a text, are Figure 2b of Esser et al. 2024,
    arXiv:2403.03206 (Stable Diffusion 3).
    As a stage of a flow: ``streams=("img", "txt"), reads=("condition",)``.

    Args:
        size: D of every stream.
        heads: N, a divisor of D.
        inner: F.
        condition: C, size of the condition that modulates (time step, pooled text).
        streams: names of the streams; they are part of the weights' paths.
        ends: streams that later blocks do not read: they are returned unchanged.
        norm_eps: eps of the norms without weights.
        qk_norm_eps: eps of an RMSNorm over each head of q and k; None without a norm.
        dtype: dtype of the parameters.

    Raises:
        ConfigError: N does not divide D, or the names are invalid or not distinct.
    """

    def __init__(
        self,
        size: int,
        heads: int,
        inner: int,
        condition: int,
        *,
        streams: Sequence[str] = ("img", "txt"),
        ends: Sequence[str] = (),
        norm_eps: float = 1e-6,
        qk_norm_eps: float | None = None,
        dtype: DType | str = "f32",
    ) -> None:
        if size % heads:
            raise ConfigError(f"joint block: {heads} heads do not divide the model size {size}")
        self.names = tuple(streams)
        for name in self.names:
            if not name.isidentifier() or hasattr(self, name):
                raise ConfigError(
                    f"joint block: the streams {', '.join(streams)}: {name!r} is not a valid name, or taken"
                )
            part = JointStream(
                size,
                heads,
                inner,
                condition,
                ends=name in ends,
                norm_eps=norm_eps,
                qk_norm_eps=qk_norm_eps,
                dtype=dtype,
            )
            setattr(self, name, part)
        if unknown := [name for name in ends if name not in self.names]:
            raise ConfigError(f"joint block: the streams are {', '.join(streams)}; {unknown[0]!r} cannot end")

    def forward(self, ctx: ExecutionContext, *values: Tensor) -> tuple[Tensor, ...]:
        """Runs the block.

        Args:
            ctx: context that computes.
            *values: tokens [B, T, D] of each stream, in the order of the names, T may differ; then the condition
                [B, C].

        Returns:
            The streams, [B, T, D] each.

        Raises:
            OpError: the number of values is not that of the streams plus one.
        """
        if len(values) != len(self.names) + 1:
            raise OpError(
                f"joint block at {self.path!r}: expected {', '.join(self.names)} and the condition; found "
                f"{len(values)} values"
            )
        ops, (*streams, condition) = ctx.ops, values
        parts: list[JointStream] = [getattr(self, name) for name in self.names]
        modulations = [part.modulation(ctx, condition) for part in parts]
        projected = [
            part.projected(ctx, x, *modulation[:2])
            for part, x, modulation in zip(parts, streams, modulations, strict=True)
        ]
        q, k, v = (ops.concat(tensors, 2) for tensors in zip(*projected, strict=True))
        batch, heads, tokens, size = q.shape
        attended = grouped_attention(ctx, ops.reshape(q, (batch, heads, 1, tokens, size)), k, v)
        apart = ops.split(ops.reshape(attended, q.shape), [x.shape[1] for x in streams], 2)
        return tuple(
            part.finished(ctx, x, heads_of_stream, modulation)
            for part, x, heads_of_stream, modulation in zip(parts, streams, apart, modulations, strict=True)
        )
