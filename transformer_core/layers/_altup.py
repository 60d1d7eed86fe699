"""Alternating updates: a residual stream of A copies, of which a layer computes one (Baykal et al. 2023, AltUp).

A layer predicts all copies from all of them, computes with the active one, and corrects the others by how far its
prediction was off. LAuReL is a residual of low rank beside attention (Menghani et al. 2024, arXiv:2411.07501).
"""

from dataclasses import dataclass

from lang_core import ConfigError, DType, ExecutionContext, Module, Parameter, Tensor
from transformer_core.layers._linear import Linear
from transformer_core.layers._norm import RMSNorm

_LEAST_SQUARE = 1e-5  # as in transformers


@dataclass(frozen=True, slots=True, kw_only=True)
class AltUpSizes:
    """Sizes of alternating updates.

    Attributes:
        size: D.
        copies: A.
        active: index of the copy that layers compute with.
        eps: eps of norms.

    Raises:
        ConfigError: the active index is out of range.
    """

    size: int
    copies: int
    active: int = 0
    eps: float = 1e-6

    def __post_init__(self) -> None:
        if not 0 <= self.active < self.copies:
            raise ConfigError(f"AltUp: expected an active copy of 0 to {self.copies - 1}; found {self.active}")


class AltUp(Module):
    """A layer's prediction and correction of copies [B, T, A, D], under Hugging Face's names."""

    def __init__(self, sizes: AltUpSizes, *, dtype: DType | str = "f32") -> None:
        size, copies = sizes.size, sizes.copies
        self.sizes = sizes
        self.correct_output_scale = Parameter((size,), dtype)
        self.correction_coefs = Linear(copies, copies, dtype=dtype, packable=False)
        self.prediction_coefs = Linear(copies, copies * copies, dtype=dtype, packable=False)
        self.modality_router = Linear(size, copies, dtype=dtype, packable=False)
        self.router_norm = RMSNorm(size, eps=sizes.eps, dtype=dtype)

    def active(self, ctx: ExecutionContext, x: Tensor) -> Tensor:
        """Returns the active copy [B, T, D] of x [B, T, A, D]."""
        return _copy(ctx, x, self.sizes.active)

    def predicted(self, ctx: ExecutionContext, x: Tensor) -> Tensor:
        """Predicts all copies x [B, T, A, D] of the next layer from this one's: the same shape."""
        ops, copies = ctx.ops, self.sizes.copies
        weights = self.prediction_coefs(ctx, self._modalities(ctx, self.active(ctx, x)))
        weights = ops.reshape(weights, (*weights.shape[:2], copies, copies))  # [B, T, A, A]
        return ops.add(ops.dot_general(weights, x, ((3,), (2,)), ((0, 1), (0, 1))), x)

    def corrected(self, ctx: ExecutionContext, predicted: Tensor, computed: Tensor) -> Tensor:
        """Corrects predictions [B, T, A, D] by the active copy that was computed [B, T, D]: the predictions' shape."""
        ops = ctx.ops
        missed = ops.sub(computed, self.active(ctx, predicted))
        weights = ops.add(self.correction_coefs(ctx, self._modalities(ctx, computed)), 1.0)  # [B, T, A]
        missed = ops.reshape(missed, (*missed.shape[:2], 1, missed.shape[2]))
        return ops.add(ops.mul(ops.reshape(weights, (*weights.shape, 1)), missed), predicted)

    def scaled(self, ctx: ExecutionContext, x: Tensor) -> Tensor:
        """Multiplies x [.., D] by the learned scale of a layer's result."""
        return ctx.ops.mul(x, ctx.parameter(self.correct_output_scale))

    def _modalities(self, ctx: ExecutionContext, x: Tensor) -> Tensor:
        """Returns numbers of -1 to 1 for the copies, [B, T, A], of x [B, T, D]."""
        normed = ctx.ops.mul(self.router_norm(ctx, x), 1 / self.sizes.size)
        return ctx.ops.tanh(self.modality_router(ctx, normed))


def add_to_others(ctx: ExecutionContext, x: Tensor, more: Tensor) -> Tensor:
    """Adds ``more`` [B, T, D] to all copies of x [B, T, A, D] but the first."""
    ops = ctx.ops
    added = ops.add(x, ops.reshape(more, (*more.shape[:2], 1, more.shape[2])))
    return ops.select(ops.greater(ops.iota((1, 1, x.shape[2], 1), 2), 0), added, x)


class AltUpProjections(Module):
    """Makes copies: x itself, and A - 1 projections with x's magnitude."""

    def __init__(self, sizes: AltUpSizes, *, dtype: DType | str = "f32") -> None:
        self.copies = sizes.copies
        for index in range(sizes.copies - 1):
            setattr(self, str(index), Linear(sizes.size, sizes.size, dtype=dtype))

    def forward(self, ctx: ExecutionContext, x: Tensor) -> Tensor:
        """Maps x [B, T, D] to copies [B, T, A, D]."""
        others = [_as_large(ctx, getattr(self, str(index))(ctx, x), x) for index in range(self.copies - 1)]
        apart = [ctx.ops.reshape(copy, (*x.shape[:2], 1, x.shape[2])) for copy in (x, *others)]
        return apart[0] if self.copies == 1 else ctx.ops.concat(apart, 2)


class AltUpUnembedding(AltUpProjections):
    """Makes one of A copies: the mean of the first and of the others' projections with its magnitude."""

    def forward(self, ctx: ExecutionContext, x: Tensor) -> Tensor:
        """Maps copies [B, T, A, D] to [B, T, D]."""
        first = total = _copy(ctx, x, 0)
        for index in range(self.copies - 1):
            projected = getattr(self, str(index))(ctx, _copy(ctx, x, index + 1))
            total = ctx.ops.add(total, _as_large(ctx, projected, first))
        return ctx.ops.mul(total, 1 / self.copies)


class Laurel(Module):
    """``x + norm(right(left(x)))``, under Hugging Face's names.

    Args:
        size: D.
        rank: size between the two projections.
        eps: eps of the norm.
        dtype: dtype of the parameters.
    """

    def __init__(self, size: int, rank: int, *, eps: float = 1e-6, dtype: DType | str = "f32") -> None:
        self.linear_left = Linear(size, rank, dtype=dtype)
        self.linear_right = Linear(rank, size, dtype=dtype)
        self.post_laurel_norm = RMSNorm(size, eps=eps, dtype=dtype)

    def forward(self, ctx: ExecutionContext, x: Tensor) -> Tensor:
        """Maps x [.., D] to [.., D]."""
        low = self.linear_right(ctx, self.linear_left(ctx, x))
        return ctx.ops.add(x, self.post_laurel_norm(ctx, low))


def _copy(ctx: ExecutionContext, x: Tensor, index: int) -> Tensor:
    """Returns copy ``index`` [B, T, D] of x [B, T, A, D]."""
    part = ctx.ops.slice_axis(x, 2, index, index + 1)
    return ctx.ops.reshape(part, (*x.shape[:2], x.shape[3]))


def _as_large(ctx: ExecutionContext, x: Tensor, other: Tensor) -> Tensor:
    """Returns x [.., D] with the root mean square of ``other`` [.., D]."""
    ops = ctx.ops
    own, wanted = (ops.mean(ops.mul(tensor, tensor), -1, keepdims=True) for tensor in (x, other))
    return ops.div(ops.mul(x, ops.sqrt(wanted)), ops.sqrt(ops.maximum(own, _LEAST_SQUARE)))
