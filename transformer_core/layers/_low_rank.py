"""Low-rank changes of linear layers that are computed beside their products: LoRA adapters of some rows of a batch."""

from dataclasses import dataclass

from lang_core import ExecutionContext, Tensor


@dataclass(frozen=True, slots=True)
class AdapterRows:
    """Adapters of the sequences of a call.

    Attributes:
        number: i32 [B], places of the sequences' adapters in the tables; any place of sequences without one.
        adapted: bool [B, 1, 1], true of sequences that have one.
        own: bool [B, 1, B, 1], true of the sequence's own ranks among those of all sequences; None if B is 1.
    """

    number: Tensor
    adapted: Tensor
    own: Tensor | None


@dataclass(frozen=True, slots=True)
class LowRankDelta:
    """Low-rank change of one linear layer: ``scale B A x`` of each sequence's own adapter.

    The products are those of a linear layer with the matrices of all sequences below each other; ranks of other
    sequences are set to 0, which changes no sum.

    Attributes:
        right: [N, R, in], A of each adapter.
        left: [N, out, R'], B of each adapter times its scale; R' is R or more.
        rows: adapters of the sequences.
    """

    right: Tensor
    left: Tensor
    rows: AdapterRows

    def added(self, ctx: ExecutionContext, x: Tensor, product: Tensor) -> Tensor:
        """Returns product [B, T, out] of x [B, T, in] with the changes; sequences without an adapter keep its bits."""
        ops, (batch, tokens, _) = ctx.ops, x.shape
        (_, rank, inputs), (_, outputs, width) = self.right.shape, self.left.shape
        right = ops.reshape(ops.take(self.right, self.rows.number, 0), (batch * rank, inputs))
        left = ops.transpose(ops.take(self.left, self.rows.number, 0), (1, 0, 2))
        inner = ops.reshape(ops.linear(x, right), (batch, tokens, batch, rank))
        if self.rows.own is not None:
            inner = ops.select(self.rows.own, inner, 0.0)
        if width > rank:
            inner = ops.pad(inner, (0, 0, 0, 0), (0, 0, 0, width - rank))
        inner = ops.reshape(inner, (batch, tokens, batch * width))
        change = ops.linear(inner, ops.reshape(left, (outputs, batch * width)))
        return ops.select(self.rows.adapted, ops.add(product, change), product)
