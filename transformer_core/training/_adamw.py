"""The optimizer AdamW."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from lang_core import ExecutionContext, Tensor


class Moments(NamedTuple):
    """Running means of a parameter's gradient and of its square; zeros at first."""

    first: Tensor
    second: Tensor


@dataclass(frozen=True, slots=True)
class AdamW:
    """Adam with weight decay apart from the gradient (Loshchilov, Hutter 2017, arXiv:1711.05101, algorithm 2).

    Attributes:
        beta1: decay factor of the first moment.
        beta2: decay factor of the second moment.
        eps: number that is added to the root of the second moment.
        weight_decay: decay of a weight per step, relative to the learning rate; vectors (norms, biases) do not decay.
        largest_norm: bound of the norm of all gradients together, to which they are scaled down.
    """

    beta1: float = 0.9
    beta2: float = 0.95
    eps: float = 1e-8
    weight_decay: float = 0.1
    largest_norm: float = 1.0

    def scale(self, ctx: ExecutionContext, gradients: Mapping[str, Tensor]) -> Tensor:
        """Returns the factor of all gradients, rank 0, at most 1."""
        ops = ctx.ops
        total = ops.constant(0.0, "f32")
        for gradient in gradients.values():
            wide = ops.cast(gradient, "f32")
            total = ops.add(total, ops.sum(ops.mul(wide, wide)))
        return ops.minimum(ops.div(self.largest_norm, ops.add(ops.sqrt(total), 1e-6)), 1.0)

    def update(
        self,
        ctx: ExecutionContext,
        parameter: Tensor,
        gradient: Tensor,
        moments: Moments,
        learning_rate: Tensor,
        step: Tensor,
    ) -> tuple[Tensor, Moments]:
        """Updates one parameter by one step.

        Args:
            ctx: context that computes.
            parameter: tensor of any shape.
            gradient: gradient, of the parameter's shape.
            moments: moments f32, of the parameter's shape.
            learning_rate: rank-0 f32.
            step: rank-0 i32, 1 in the first step.

        Returns:
            The new parameter, of its shape and dtype, and the new moments, likewise.
        """
        ops = ctx.ops
        wide, count = ops.cast(gradient, "f32"), ops.cast(step, "f32")
        first = ops.add(ops.mul(moments.first, self.beta1), ops.mul(wide, 1 - self.beta1))
        second = ops.add(ops.mul(moments.second, self.beta2), ops.mul(ops.mul(wide, wide), 1 - self.beta2))
        unbiased = [
            ops.div(moment, ops.sub(1.0, ops.pow(ops.constant(beta, "f32"), count)))
            for moment, beta in ((first, self.beta1), (second, self.beta2))
        ]
        change = ops.div(unbiased[0], ops.add(ops.sqrt(unbiased[1]), self.eps))
        weights = ops.cast(parameter, "f32")
        if parameter.ndim > 1:
            change = ops.add(change, ops.mul(weights, self.weight_decay))
        new = ops.sub(weights, ops.mul(change, learning_rate))
        return ops.cast(new, parameter.dtype), Moments(first, second)
