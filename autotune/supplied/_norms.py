"""Softmax and RMS norm."""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from autotune import Invocation, Kernel
from lang_core import ExecutionContext, Tensor, as_dtype, checked_choices


@checked_choices
@dataclass(frozen=True)
class SoftmaxConfig:
    """Configuration of softmax.

    Attributes:
        form: ``divide`` (``ctx.ops.softmax``), ``reciprocal`` (one division per row), or ``log`` (exp(x - logsumexp)).
    """

    form: Literal["divide", "reciprocal", "log"] = "divide"


class SoftmaxKernel(Kernel[SoftmaxConfig, Tensor]):
    """Softmax of a floating x along the last axis, computed in f32 or wider."""

    op_id = "softmax"

    def run(self, x: Any, *, cfg: SoftmaxConfig, ctx: ExecutionContext) -> Tensor:
        """Returns a tensor of x's shape and dtype."""
        ops = ctx.ops
        if cfg.form == "divide":
            return ops.softmax(x, -1)
        if cfg.form == "log":
            wide = ops.cast(x, as_dtype(x.dtype).accumulation)
            return ops.cast(ops.exp(ops.log_softmax(wide, -1)), x.dtype)
        wide = ops.cast(x, as_dtype(x.dtype).accumulation)
        raised = ops.exp(ops.sub(wide, ops.max(wide, -1, keepdims=True)))
        return ops.cast(ops.mul(raised, ops.div(1.0, ops.sum(raised, -1, keepdims=True))), x.dtype)

    def heuristic_cfg(self, inv: Invocation[Any, Any]) -> SoftmaxConfig:
        """Returns the form of ``ctx.ops``."""
        return SoftmaxConfig()

    def candidate_cfgs(self, inv: Invocation[Any, Any]) -> list[SoftmaxConfig]:
        """Returns every form."""
        return [SoftmaxConfig("divide"), SoftmaxConfig("reciprocal"), SoftmaxConfig("log")]


@checked_choices
@dataclass(frozen=True)
class RMSNormConfig:
    """Configuration of the RMS norm.

    Attributes:
        form: ``mean`` (``ctx.ops.rms_norm``), or ``dot`` (the sum of squares is a product of a row with itself).
    """

    form: Literal["mean", "dot"] = "mean"


class RMSNormKernel(Kernel[RMSNormConfig, Tensor]):
    """``weight * x / sqrt(mean(x^2) + eps)``; see ``ctx.ops.rms_norm``. Arguments: x [.., D], weight [D] or None."""

    op_id = "rms_norm"

    def run(
        self, x: Any, weight: Any = None, *, cfg: RMSNormConfig, ctx: ExecutionContext, eps: float = 1e-6
    ) -> Tensor:
        """Returns a tensor of x's shape and dtype."""
        ops = ctx.ops
        if cfg.form == "mean":
            return ops.rms_norm(x, weight, eps)
        shape, size = tuple(x.shape), x.shape[-1]
        rows = ops.reshape(ops.cast(x, as_dtype(x.dtype).accumulation), (int(np.prod(shape[:-1])), size))
        squares = ops.dot_general(rows, rows, ((1,), (1,)), ((0,), (0,)))
        scale = ops.rsqrt(ops.add(ops.div(squares, float(size)), eps))
        normed = ops.cast(ops.reshape(ops.mul(rows, ops.reshape(scale, (rows.shape[0], 1))), shape), x.dtype)
        return normed if weight is None else ops.mul(ops.cast(weight, x.dtype), normed)

    def heuristic_cfg(self, inv: Invocation[Any, Any]) -> RMSNormConfig:
        """Returns the form of ``ctx.ops``."""
        return RMSNormConfig()

    def candidate_cfgs(self, inv: Invocation[Any, Any]) -> list[RMSNormConfig]:
        """Returns every form."""
        return [RMSNormConfig("mean"), RMSNormConfig("dot")]
