"""Layers with one mixer, of tokens or of channels."""

from lang_core import DType, Module
from transformer_core.family._config import DecoderConfig
from transformer_core.family._layer import norm
from transformer_core.flow import Block, FlowContext, FlowValue


class MixerLayer(Block, may_declare=False):
    """Layer ``x + mixer(norm(x))``, with a mixer of any kind that a flow runs: attention, state, feed-forward."""

    def __init__(self, config: DecoderConfig, dtype: DType, mixer: Module) -> None:
        self.norm = norm(config, dtype)
        self.mixer = mixer

    def run(self, flow: FlowContext, *values: FlowValue) -> FlowValue:
        """Runs the layer on x [B, T, D]: the same shape."""
        (x,) = values
        x = tagged(flow, x, "input")
        mixed = tagged(flow, flow.run(self.mixer, flow.run(self.norm, x)), "mixer.output")
        return tagged(flow, flow.emit("add", x, mixed, spec=x.spec), "output")


def tagged(flow: FlowContext, x: FlowValue, name: str) -> FlowValue:
    """Returns a value that dumps show under a name."""
    return flow.value(flow.ctx.tag(x.tensor, name))
