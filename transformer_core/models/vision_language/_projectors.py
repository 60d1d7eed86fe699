"""Projectors: from the states of a vision tower to the decoder's embeddings."""

from lang_core import DType, ExecutionContext, Module, Tensor
from transformer_core.layers._embedding import Size
from transformer_core.layers._feed_forward import Activation
from transformer_core.layers._linear import Linear


class MlpProjector(Module):
    """Two linear layers with an activation between them.

    Args:
        size: size of the tower's states.
        hidden: D.
        activation: activation between the layers.
        bias: whether the layers have biases.
        dtype: dtype of the parameters.
    """

    def __init__(self, size: int, hidden: int, activation: Activation, *, bias: bool = True, dtype: DType) -> None:
        self.activation = activation
        self.linear_1 = Linear(size, hidden, bias=bias, dtype=dtype)
        self.linear_2 = Linear(hidden, hidden, bias=bias, dtype=dtype)

    def forward(self, ctx: ExecutionContext, x: Tensor) -> Tensor:
        """Maps x [.., E] to [.., D]."""
        return self.linear_2(ctx, self.activation(ctx, self.linear_1(ctx, x)))


def squares_of(ctx: ExecutionContext, patches: Tensor, grid: Size, side: int) -> Tensor:
    """Joins squares of ``side`` x ``side`` patches [B, height * width, E], row by row: [B, T, side * side * E]."""
    ops, (height, width), (batch, _, size) = ctx.ops, grid, patches.shape
    apart = ops.reshape(patches, (batch, height // side, side, width // side, side, size))
    squares = ops.transpose(apart, (0, 1, 3, 2, 4, 5))
    return ops.reshape(squares, (batch, height * width // side**2, side**2 * size))
