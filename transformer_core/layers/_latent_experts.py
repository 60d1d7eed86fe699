"""Mixture of experts without gates, over compressed activations or whole ones, beside a shared expert."""

from lang_core import DType, ExecutionContext, Module, Tensor, checked_choices
from transformer_core.layers._feed_forward import Activation, FeedForward
from transformer_core.layers._linear import Linear
from transformer_core.layers._moe import Experts
from transformer_core.layers._routing import Router, Routing


@checked_choices
class LatentExperts(Module):
    """Router, experts ``down(activation(up(x)))`` and one that every token goes through (Nemotron 3).

    Args:
        size: D.
        inner: F of one expert.
        routing: choice of experts.
        shared: F of the shared expert.
        latent: size of the routed experts' input and output; D, without projections to it and from it, if None.
        activation: activation of all experts.
        bias: whether the shared expert and the projections have biases.
        dtype: dtype of the parameters.
    """

    def __init__(
        self,
        size: int,
        inner: int,
        routing: Routing,
        *,
        shared: int,
        latent: int | None = None,
        activation: Activation = Activation.RELU_SQUARED,
        bias: bool = False,
        dtype: DType | str = "f32",
    ) -> None:
        width = size if latent is None else latent
        self.gate = Router(size, routing, dtype=dtype)
        self.experts = Experts(routing.experts, width, inner, activation=activation, gated=False, dtype=dtype)
        self.shared_experts = FeedForward(size, shared, activation=activation, bias=bias, dtype=dtype)
        self.fc1_latent_proj = None if latent is None else Linear(size, latent, bias=bias, dtype=dtype)
        self.fc2_latent_proj = None if latent is None else Linear(latent, size, bias=bias, dtype=dtype)

    def forward(self, ctx: ExecutionContext, x: Tensor) -> Tensor:
        """Maps x [.., D] to [.., D]."""
        tokens = ctx.ops.reshape(x, (-1, x.shape[-1]))
        given = tokens if self.fc1_latent_proj is None else self.fc1_latent_proj(ctx, tokens)
        routed = self.experts(ctx, given, *self.gate(ctx, tokens))
        if self.fc2_latent_proj is not None:
            routed = self.fc2_latent_proj(ctx, routed)
        return ctx.ops.add(ctx.ops.reshape(routed, x.shape), self.shared_experts(ctx, x))
