"""Low-rank changes of linear layers that are computed beside their products: a LoRA adapter of each row of a batch."""

from collections.abc import Sequence
from dataclasses import dataclass

from lang_core import ExecutionContext, Tensor


@dataclass(frozen=True, slots=True)
class LowRankDelta:
    """Low-rank change of one linear layer: ``scale B A x`` of each sequence's own adapter.

    Attributes:
        right: [R, in] per sequence, A of its adapter.
        left: [out, R'] per sequence, B of its adapter times the scale; R' is R or more.
    """

    right: Sequence[Tensor]
    left: Sequence[Tensor]

    def added(self, ctx: ExecutionContext, x: Tensor, product: Tensor) -> Tensor:
        """Returns product [B, T, out] of x [B, T, in] with the changes; a sequence's has the bits that it has alone."""
        ops = ctx.ops
        changes = []
        for row, (right, left) in enumerate(zip(self.right, self.left, strict=True)):
            own = x if x.shape[0] == 1 else ops.slice_axis(x, 0, row, row + 1)
            inner = ops.linear(own, right)
            missing = left.shape[1] - right.shape[0]
            if missing:
                inner = ops.pad(inner, (0, 0, 0), (0, 0, missing))
            changes.append(ops.linear(inner, left))
        return ops.add(product, changes[0] if len(changes) == 1 else ops.concat(changes, 0))
