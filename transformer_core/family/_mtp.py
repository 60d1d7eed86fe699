"""Multi-token prediction: a layer after the last one that guesses the token after the next (arXiv:2412.19437, 2.2)."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from lang_core import DType, Module, Tensor, TensorSpec
from transformer_core.family._config import DecoderConfig, family_of
from transformer_core.family._layer import norm
from transformer_core.flow import Block, FlowContext, FlowValue
from transformer_core.layers._cache import CacheLayout
from transformer_core.layers._linear import Linear
from transformer_core.layers._masks import mask_bias


@dataclass(frozen=True, slots=True)
class HiddenStates:
    """The last layer's normed results of the tokens so far.

    Attributes:
        hidden: [B, 1, S, D]; that of a position lies at its place.
    """

    hidden: Tensor

    @property
    def tensors(self) -> tuple[Tensor]:
        """``hidden``."""
        return (self.hidden,)


class _HiddenCache(Module):
    """Cache of the hidden states that the head reads one token later."""

    def __init__(self, size: int, dtype: DType) -> None:
        self.size, self.dtype = size, dtype

    def cache_layout(self, batch: int, capacity: int) -> CacheLayout:
        """Returns the layout."""
        spec = TensorSpec((batch, 1, capacity, self.size), self.dtype)
        return CacheLayout(HiddenStates, {"hidden_cache": spec}, axes={"hidden_cache": ("dp", None, None, None)})


class MtpHead(Block, may_declare=False):
    """Multi-token prediction head of depth 1, under the names of Qwen's checkpoints.

    For token i it joins the token's embedding with the hidden state of token i - 1, both normed, and runs a layer over
    the tokens from 1 on. The result, normed, goes to the model's own output projection: logits of token i + 1.

    Entry points that feed tokens to the model only fill the head's caches, and all other ops are pruned.
    ``draft`` reads the hidden state of the token before, and leaves its own result as that of its token: so a further
    call guesses one token further. The next call of the model puts the true one in its place.

    Args:
        config: configuration of the decoder.
        dtype: dtype of the parameters.
        drafts: whether it is the one of ``draft``.
    """

    def __init__(self, config: DecoderConfig, dtype: DType, *, drafts: bool = False) -> None:
        self.pre_fc_norm_embedding = norm(config, dtype)
        self.pre_fc_norm_hidden = norm(config, dtype)
        self.fc = Linear(2 * config.hidden, config.hidden, dtype=dtype)
        layer_config = _layer_config(config)
        self.layers = [family_of(config).layer(layer_config, 0, dtype)]
        self.norm = norm(config, dtype)
        self.hidden = _HiddenCache(config.hidden, dtype)
        self.drafts = drafts

    def run(self, flow: FlowContext, *values: FlowValue) -> FlowValue:
        """Fills the caches, and returns x [B, T, D]: the present value, or if it drafts its own result.

        Args:
            flow: the run.
            values: x, normed; and the tokens' embeddings, which alone are read if it drafts.
        """
        x, embedded = values[0], values[-1]
        cache = flow.slot(self.hidden)
        if not isinstance(cache, HiddenStates):
            return x  # of whole sequences nothing is drafted
        before = self._before(flow, cache, x.tensor)
        joined = (self.pre_fc_norm_embedding(flow.ctx, embedded.tensor), self.pre_fc_norm_hidden(flow.ctx, before))
        mixed = FlowValue.of(self.fc(flow.ctx, flow.ctx.ops.concat(joined, 2)))
        with _from_the_second_token(flow):
            guessed = flow.run(self.norm, flow.run(self.layers[0], mixed))
        result = guessed if self.drafts else x
        self._store(flow, cache, result.tensor)
        return result

    def _before(self, flow: FlowContext, cache: HiddenStates, x: Tensor) -> Tensor:
        """Returns the hidden states [B, T, D] of the tokens before.

        Undefined at position 0, which tokens do not see.
        """
        ops, (batch, tokens, size) = flow.ctx.ops, x.shape
        at = ops.sub(_position(flow), 1)
        first = ops.reshape(ops.dynamic_slice(cache.hidden, (0, 0, at, 0), (batch, 1, 1, size)), (batch, 1, size))
        if tokens == 1:
            return first
        return ops.concat((first, ops.slice(x, (0, 0, 0), (batch, tokens - 1, size))), 1)

    def _store(self, flow: FlowContext, cache: HiddenStates, x: Tensor) -> None:
        batch, tokens, size = x.shape
        new = flow.ctx.ops.reshape(x, (batch, 1, tokens, size))
        written = flow.step.places[None].written(flow.ctx, cache.hidden, new)
        flow.fill(self.hidden, HiddenStates(written))


def _layer_config(config: DecoderConfig) -> DecoderConfig:
    """Returns the configuration of the head's layer: attention without a window, and experts if there are some."""
    experts = None if config.experts is None else replace(config.experts, layers=(True,))
    return replace(config, layers=1, windows=(None,), mixer=None, experts=experts, rope_kinds=(), cache_owners=())


def _position(flow: FlowContext) -> Tensor:
    position = flow.state.position
    assert position is not None  # there are caches
    return position


@contextmanager
def _from_the_second_token(flow: FlowContext) -> Iterator[None]:
    """Hides the first token's key and value: the head lacks a hidden state before it."""
    ops, step = flow.ctx.ops, flow.step
    bias = step.biases[None]
    assert bias is not None
    queries, keys = bias.shape
    is_first_query = ops.equal(ops.reshape(step.positions, (queries, 1)), 0)
    seen = ops.logical_or(is_first_query, ops.greater(ops.iota((1, keys), 1), 0))
    flow.state.step = replace(step, biases={None: ops.add(bias, mask_bias(flow.ctx, seen))})
    try:
        yield
    finally:
        flow.state.step = step
