"""A block of several streams of tokens that meet in attention (diffusion transformers)."""

from collections.abc import Sequence

from lang_core import ConfigError, DType, ExecutionContext, Module, OpError, Tensor
from transformer_core._attention import grouped_attention
from transformer_core._feed_forward import Activation, FeedForward
from transformer_core._linear import Linear
from transformer_core._norm import RMSNorm


class Modulation(Module):
    """Shifts, scales and gates of a condition: ``linear(silu(c))`` (Peebles, Xie 2022, arXiv:2212.09748).

    Args:
        condition: the size of c.
        size: D.
        parts: how many there are.
        dtype: of the parameters.
    """

    def __init__(self, condition: int, size: int, parts: int, *, dtype: DType | str = "f32") -> None:
        self.linear = Linear(condition, parts * size, bias=True, dtype=dtype)
        self.size, self.parts = size, parts

    def forward(self, ctx: ExecutionContext, condition: Tensor) -> tuple[Tensor, ...]:
        """condition [B, C]: each [B, 1, D], shift before scale before gate."""
        made = self.linear(ctx, ctx.ops.silu(condition))
        apart = ctx.ops.reshape(made, (condition.shape[0], 1, self.parts * self.size))
        return tuple(ctx.ops.split(apart, (self.size,) * self.parts, 2))


class JointStream(Module):
    """What one stream has of its own: projections, feed-forward and modulation; norms without weights."""

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
        """Queries, keys and values [B, N, T, H] of x [B, T, D]."""
        normed = self._modulated(ctx, x, shift, scale)
        q, k, v = (self._heads(ctx, each(ctx, normed)) for each in (self.q_proj, self.k_proj, self.v_proj))
        if self.q_norm is not None and self.k_norm is not None:
            q, k = self.q_norm(ctx, q), self.k_norm(ctx, k)
        return q, k, v

    def finished(self, ctx: ExecutionContext, x: Tensor, heads: Tensor, modulation: Sequence[Tensor]) -> Tensor:
        """The stream after attention and feed-forward: x [B, T, D], what its heads saw [B, N, T, H], six parts."""
        if self.o_proj is None or self.mlp is None:
            return x
        ops = ctx.ops
        _, _, gate, shift, scale, mlp_gate = modulation
        seen = self.o_proj(ctx, ops.reshape(ops.transpose(heads, (0, 2, 1, 3)), x.shape))
        x = ops.add(x, ops.mul(gate, seen))
        return ops.add(x, ops.mul(mlp_gate, self.mlp(ctx, self._modulated(ctx, x, shift, scale))))

    def _modulated(self, ctx: ExecutionContext, x: Tensor, shift: Tensor, scale: Tensor) -> Tensor:
        """``norm(x) * (1 + scale) + shift``, the norm without weights."""
        normed = ctx.ops.layer_norm(x, eps=self.norm_eps)
        return ctx.ops.add(ctx.ops.mul(normed, ctx.ops.add(scale, 1.0)), shift)

    def _heads(self, ctx: ExecutionContext, x: Tensor) -> Tensor:
        """x [B, T, D]: [B, N, T, H]."""
        apart = ctx.ops.reshape(x, (*x.shape[:2], self.heads, self.head_size))
        return ctx.ops.transpose(apart, (0, 2, 1, 3))


class JointBlock(Module):
    """Every token of N streams sees those of all, and each stream has weights of its own: ``MM-DiT``.

    Two streams, of a picture and of a text, are Figure 2b of Esser et al. 2024, arXiv:2403.03206 (Stable Diffusion 3).
    As a stage of a flow: ``streams=("img", "txt"), reads=("condition",)``.

    Args:
        size: D of every stream.
        heads: N, a divisor of D.
        inner: F.
        condition: the size of what modulates: of the time step and whatever else.
        streams: their names, which stand in the paths of their weights.
        ends: those that are read for the last time: they come out as they came in.
        norm_eps: of the norms without weights.
        qk_norm_eps: where given, each head of q and k goes through an RMSNorm with this eps.
        dtype: of the parameters.

    Raises:
        ConfigError: N does not divide D, or the names are no names or not distinct.
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
                raise ConfigError(f"joint block: the streams {', '.join(streams)}: {name!r} is no name, or taken")
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
            ctx: where to compute.
            *values: of each stream, in the order of their names, its tokens [B, T, D], T of its own; then the condition
                [B, C].

        Returns:
            The streams, [B, T, D] each.

        Raises:
            OpError: there is not one value per stream, and the condition.
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
        q, k, v = (ops.concat([each[place] for each in projected], 2) for place in range(3))
        batch, heads, tokens, size = q.shape
        seen = grouped_attention(ctx, ops.reshape(q, (batch, heads, 1, tokens, size)), k, v)
        apart = ops.split(ops.reshape(seen, q.shape), [x.shape[1] for x in streams], 2)
        return tuple(
            part.finished(ctx, x, each, modulation)
            for part, x, each, modulation in zip(parts, streams, apart, modulations, strict=True)
        )
