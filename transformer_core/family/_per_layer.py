"""Embeddings of tokens for every layer: computed before the layers, and mixed in by each (Gemma 3n, Gemma 4)."""

from typing import Final

from lang_core import DType, ExecutionContext, Module, OpError, Tensor, checked_choices
from transformer_core._config_fields import ConfigFields
from transformer_core.family._config import DecoderConfig
from transformer_core.family._layer_configs import PerLayerConfig
from transformer_core.flow import FlowContext, FlowValue, ModelFlow
from transformer_core.layers._embedding import TokenEmbedding
from transformer_core.layers._linear import Linear
from transformer_core.layers._norm import RMSNorm

PER_LAYER: Final = "per_layer_inputs"
"""Name of the embeddings for the layers, [L, B, T, P]."""
_EMBEDDED: Final = "embedded"
_PROJECTED: Final = "projected"


@checked_choices
def read_per_layer(fields: ConfigFields, *, whole: bool) -> PerLayerConfig | None:
    """Reads the sizes of embeddings for every layer; None if their size is 0.

    Args:
        fields: fields of config.json.
        whole: whether every token must have some.
    """
    size = fields.integer("hidden_size_per_layer_input", 256, minimum=0)
    if size == 0:
        return None
    tokens = fields.integer("vocab_size") if whole else 1
    vocabulary = fields.integer("vocab_size_per_layer_input", 262144, minimum=tokens)
    return PerLayerConfig(vocabulary=vocabulary, layers=fields.integer("num_hidden_layers"), size=size)


def per_layer_inputs(config: DecoderConfig, sizes: PerLayerConfig) -> ModelFlow:
    """Returns the stages that keep ``PER_LAYER``, of embedded tokens [B, T, D], which stay the present value.

    They are ``(norm(projection of the embedded token) + embedding of the token) / sqrt(2)``. The table of the latter
    has a row per token with the embeddings for all layers one after the other.
    """
    width = sizes.layers * sizes.size

    def by_layer(flow: FlowContext, x: FlowValue) -> FlowValue:
        scaled = flow.ctx.ops.mul(x.tensor, config.hidden**-0.5)
        return FlowValue.of(flow.ctx.ops.reshape(scaled, (*x.shape[:-1], sizes.layers, sizes.size)))

    return (
        ModelFlow(PER_LAYER)
        .keep(_EMBEDDED)
        .stage("per_layer_model_projection", lambda build: Linear(config.hidden, width, dtype=build.dtype))
        .custom("by_layer", by_layer)
        .stage("per_layer_projection_norm", lambda build: RMSNorm(sizes.size, eps=config.norm_eps, dtype=build.dtype))
        .keep(_PROJECTED)
        .custom("token_ids", lambda flow, x: FlowValue.of(_known_ids(flow, config.vocabulary, sizes)))
        .stage("embed_tokens_per_layer", lambda build: TokenEmbedding(sizes.vocabulary, width, dtype=build.dtype))
        .custom(PER_LAYER, lambda flow, x: _combined(flow, x, config.layers, sizes))
        .keep(PER_LAYER)
        .custom(_EMBEDDED, lambda flow, x: flow.named(_EMBEDDED))
    )


def _known_ids(flow: FlowContext, vocabulary: int, sizes: PerLayerConfig) -> Tensor:
    """Returns the token ids i32 [B, T], 0 in place of those that are not in the table."""
    ids, ops = flow.input("token_ids").tensor, flow.ctx.ops
    return ids if sizes.vocabulary >= vocabulary else ops.select(ops.less(ids, sizes.vocabulary), ids, 0)


def _combined(flow: FlowContext, embedded: FlowValue, layers: int, sizes: PerLayerConfig) -> FlowValue:
    """Adds the projection to embeddings [B, T, ..] of all layers: [L, B, T, P] of those that are run."""
    ops, projected = flow.ctx.ops, flow.named(_PROJECTED)
    scaled = ops.mul(ops.reshape(embedded.tensor, projected.shape), sizes.size**0.5)
    both = ops.mul(ops.add(projected.tensor, scaled), 0.5**0.5)
    return FlowValue.of(ops.transpose(ops.slice_axis(both, 2, 0, layers), (2, 0, 1, 3)))


class PerLayerMixing(Module):
    """Layer's gate of its embeddings ``norm(projection(activation(gate(x)) * embedding))``, under Hugging Face's names.

    Layers have its modules as their own: a base class.

    Attributes:
        mixes_embeddings: whether the layer has these modules.
    """

    mixes_embeddings: bool = False

    def add_per_layer(self, config: DecoderConfig, sizes: PerLayerConfig, dtype: DType) -> None:
        """Makes the modules."""
        self.mixes_embeddings = True
        self.per_layer_activation = config.activation
        self.per_layer_input_gate = Linear(config.hidden, sizes.size, dtype=dtype)
        self.per_layer_projection = Linear(sizes.size, config.hidden, dtype=dtype)
        self.post_per_layer_input_norm = RMSNorm(config.hidden, eps=config.norm_eps, dtype=dtype)

    def per_layer_mixed(self, ctx: ExecutionContext, x: Tensor, embedded: Tensor | None) -> Tensor:
        """Maps x [B, T, D] and the layer's embeddings [B, T, P] to the update: [B, T, D].

        Raises:
            OpError: embeddings are missing.
        """
        if embedded is None:
            raise OpError(f"layer {self.path!r}: expected embeddings [B, T, P] besides x; found none")
        gate = self.per_layer_activation(ctx, self.per_layer_input_gate(ctx, x))
        mixed = self.per_layer_projection(ctx, ctx.ops.mul(gate, embedded))
        return ctx.tag(self.post_per_layer_input_norm(ctx, mixed), "per_layer.output")
