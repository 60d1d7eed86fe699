"""Norms over the last axis, computed in f32 or wider."""

from lang_core import DType, ExecutionContext, Module, Parameter, Tensor, as_dtype, checked_choices


@checked_choices
class RMSNorm(Module):
    """``weight * x / sqrt(mean(x^2) + eps)`` (Zhang, Sennrich 2019, arXiv:1910.07467).

    Args:
        size: D.
        eps: added to the mean of squares.
        zero_centred: whether 1 is added to the stored weight (Gemma, Qwen3-Next).
        dtype: dtype of the weight.
    """

    def __init__(self, size: int, *, eps: float = 1e-6, zero_centred: bool = False, dtype: DType | str = "f32") -> None:
        self.weight = Parameter((size,), dtype)
        self.eps, self.zero_centred = eps, zero_centred

    def forward(self, ctx: ExecutionContext, x: Tensor) -> Tensor:
        """Norms x [.., D].

        As in Hugging Face's models, the result is rounded to x's dtype before it is multiplied by the weight; after,
        if the weight is zero-centred.
        """
        ops, weight = ctx.ops, ctx.parameter(self.weight)
        if not self.zero_centred:
            return ops.rms_norm(x, weight, self.eps)

        def body(x: Tensor, weight: Tensor, eps: float) -> Tensor:
            wide = as_dtype(x.dtype).accumulation
            scale = ops.add(ops.cast(weight, wide), 1.0)
            return ops.cast(ops.rms_norm(ops.cast(x, wide), scale, eps), x.dtype)

        return ctx.composite("zero_centred_rms_norm", body, (x, weight), (self.eps,))


class WeightlessRMSNorm(Module):
    """``x / sqrt(mean(x^2) + eps)`` (nanochat).

    Args:
        eps: added to the mean of squares.
    """

    def __init__(self, eps: float = 1e-6) -> None:
        self.eps = eps

    def forward(self, ctx: ExecutionContext, x: Tensor) -> Tensor:
        """Maps x [.., D] to [.., D]."""
        return ctx.ops.rms_norm(x, None, self.eps)


class GatedRMSNorm(Module):
    """``RMSNorm(x) * silu(gate)``: the norm after linear attention in Qwen3-Next."""

    def __init__(self, size: int, *, eps: float = 1e-6, dtype: DType | str = "f32") -> None:
        self.weight = Parameter((size,), dtype)
        self.eps = eps

    def forward(self, ctx: ExecutionContext, x: Tensor, gate: Tensor) -> Tensor:
        """Norms x [.., D] and multiplies it by ``silu(gate)``, gate [.., D]; in f32 or wider."""
        wide = as_dtype(x.dtype).accumulation
        normed = ctx.ops.cast(ctx.ops.rms_norm(x, ctx.parameter(self.weight), self.eps), wide)
        return ctx.ops.cast(ctx.ops.mul(normed, ctx.ops.silu(ctx.ops.cast(gate, wide))), x.dtype)


@checked_choices
class LayerNorm(Module):
    """``(x - mean) / sqrt(variance + eps) * weight + bias`` (Ba et al. 2016, arXiv:1607.06450).

    Args:
        size: D.
        eps: added to the variance.
        bias: whether there is a bias.
        zero_centred: whether 1 is added to the stored weight (Nemotron).
        dtype: dtype of the parameters.
    """

    def __init__(
        self,
        size: int,
        *,
        eps: float = 1e-5,
        bias: bool = True,
        zero_centred: bool = False,
        dtype: DType | str = "f32",
    ) -> None:
        self.weight = Parameter((size,), dtype)
        self.bias = Parameter((size,), dtype) if bias else None
        self.eps, self.zero_centred = eps, zero_centred

    def forward(self, ctx: ExecutionContext, x: Tensor) -> Tensor:
        """Maps x [.., D] to [.., D]."""
        bias = None if self.bias is None else ctx.parameter(self.bias)
        weight = ctx.parameter(self.weight)
        return ctx.ops.layer_norm(x, ctx.ops.add(weight, 1.0) if self.zero_centred else weight, bias, self.eps)


class WeightlessLayerNorm(Module):
    """``(x - mean) / sqrt(variance + eps)`` (OLMo 1).

    Args:
        eps: added to the variance.
    """

    def __init__(self, eps: float = 1e-5) -> None:
        self.eps = eps

    def forward(self, ctx: ExecutionContext, x: Tensor) -> Tensor:
        """Maps x [.., D] to [.., D]."""
        return ctx.ops.layer_norm(x, eps=self.eps)
