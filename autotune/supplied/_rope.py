"""Rotary positions."""

from dataclasses import dataclass
from typing import Any, Literal

from autotune import Invocation, Kernel
from lang_core import ExecutionContext, Tensor, checked_choices
from transformer_core import RopeMode, apply_rope


@checked_choices
@dataclass(frozen=True)
class RopeKernelConfig:
    """Configuration of the rotation.

    Attributes:
        form: ``apply`` (``apply_rope``: on strided views eagerly, with a swapped copy in a recording), or ``halves``
            (both members of the pairs separately; nothing is swapped).
    """

    form: Literal["apply", "halves"] = "apply"


class RopeKernel(Kernel[RopeKernelConfig, Tensor]):
    """The function ``apply_rope``: x [.., H], cos and sin [.., R] from ``rope_tables``, and ``mode``."""

    op_id = "rope"

    @checked_choices
    def run(
        self,
        x: Any,
        cos: Any,
        sin: Any,
        *,
        cfg: RopeKernelConfig,
        ctx: ExecutionContext,
        mode: RopeMode = RopeMode.SPLIT_HALF,
    ) -> Tensor:
        """Returns a tensor of x's shape and dtype."""
        if cfg.form == "apply":
            return apply_rope(ctx, x, cos, sin, mode)
        ops, rotated, size = ctx.ops, cos.shape[-1], x.shape[-1]
        split = mode is RopeMode.SPLIT_HALF
        turning = x if rotated == size else ops.slice_axis(x, len(x.shape) - 1, 0, rotated)

        def members(t: Any) -> list[Tensor]:
            """Splits [.., R] into the first and the second member of each pair, [.., R / 2, 1] or [.., 1, R / 2]."""
            shape = (*t.shape[:-1], 2, rotated // 2) if split else (*t.shape[:-1], rotated // 2, 2)
            pairs = ops.reshape(t, shape)
            return [ops.slice_axis(pairs, len(shape) - (2 if split else 1), i, i + 1) for i in (0, 1)]

        (a, b), (cos_a, cos_b), (sin_a, sin_b) = members(turning), members(cos), members(sin)
        first = ops.add(ops.mul(a, cos_a), ops.mul(b, sin_a))
        second = ops.add(ops.mul(b, cos_b), ops.mul(a, sin_b))
        turned = ops.concat([first, second], first.ndim - (2 if split else 1))
        turned = ops.cast(ops.reshape(turned, tuple(turning.shape)), x.dtype)
        rest = ops.slice_axis(x, len(x.shape) - 1, rotated, size)
        return turned if rotated == size else ops.concat([turned, rest], turned.ndim - 1)

    def heuristic_cfg(self, inv: Invocation[Any, Any]) -> RopeKernelConfig:
        """Returns the form that models use."""
        return RopeKernelConfig()

    def candidate_cfgs(self, inv: Invocation[Any, Any]) -> list[RopeKernelConfig]:
        """Returns every form."""
        return [RopeKernelConfig("apply"), RopeKernelConfig("halves")]
