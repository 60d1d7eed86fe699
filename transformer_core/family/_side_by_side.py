"""Layers with attention and a state mixer side by side, and scales everywhere."""

from dataclasses import dataclass

from lang_core import ConfigError, DType, ExecutionContext, Tensor, checked_choices
from transformer_core.family._config import DecoderConfig
from transformer_core.family._layer import attention, norm, state_mixer
from transformer_core.family._layer_configs import Mamba2Config
from transformer_core.family._mixer_layer import tagged
from transformer_core.flow import Block, FlowContext, FlowValue
from transformer_core.layers._feed_forward import SwiGLU


@checked_choices
@dataclass(frozen=True, slots=True, kw_only=True)
class SideBySideConfig(Mamba2Config):
    """Layers with attention and a Mamba-2 side by side.

    Attributes:
        attention_input: factor of attention's input.
        attention: factor of attention's result.
        mamba: factor of the Mamba-2's result.
        mlp: factors of the feed-forward's gate and of its result.
    """

    attention_input: float
    attention: float
    mamba: float
    mlp: tuple[float, ...]


class _ScaledSwiGLU(SwiGLU):
    """``SwiGLU`` with scales of the gate and of the result."""

    scales: tuple[float, ...] = (1.0, 1.0)

    def forward(self, ctx: ExecutionContext, x: Tensor) -> Tensor:
        """Maps x [.., D] to [.., D]."""
        gate = self.activation(ctx, ctx.ops.mul(self.gate_proj(ctx, x), self.scales[0]))
        return ctx.ops.mul(self.down_proj(ctx, ctx.ops.mul(gate, self.up_proj(ctx, x))), self.scales[1])


class SideBySideLayer(Block, may_declare=False):
    """Layer ``x + mamba(norm(x)) + attention(norm(x))``, then ``x + mlp(norm(x))``."""

    def __init__(self, config: DecoderConfig, index: int, dtype: DType) -> None:
        if not isinstance(config.mixer, SideBySideConfig):
            raise ConfigError(f"{config.architecture}: expected a mixer with scales; found {config.mixer}")
        self.mamba, self.self_attn = state_mixer(config, dtype), attention(config, index, dtype)
        kind, bias = config.activation, config.mlp_bias
        self.feed_forward = _ScaledSwiGLU(config.hidden, config.intermediate, activation=kind, bias=bias, dtype=dtype)
        self.feed_forward.scales, self.scales = config.mixer.mlp, config.mixer
        self.input_layernorm, self.pre_ff_layernorm = norm(config, dtype), norm(config, dtype)

    def run(self, flow: FlowContext, *values: FlowValue) -> FlowValue:
        """Runs the layer on x [B, T, D]: the same shape."""
        x = tagged(flow, values[0], "input")
        normed = flow.run(self.input_layernorm, x)
        mixed = flow.emit("mul", tagged(flow, flow.run(self.mamba, normed), "mamba.output"), self.scales.mamba)
        attended = flow.run(self.self_attn, flow.emit("mul", normed, self.scales.attention_input))
        attended = flow.emit("mul", tagged(flow, attended, "self_attn.output"), self.scales.attention)
        x = flow.emit("add", x, flow.emit("add", mixed, attended))
        forwarded = tagged(flow, flow.run(self.feed_forward, flow.run(self.pre_ff_layernorm, x)), "feed_forward.output")
        return tagged(flow, flow.emit("add", x, forwarded), "output")
