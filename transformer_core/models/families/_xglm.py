"""XGLM (arXiv:2112.10668): sinusoidal positions, scaled embeddings, layer norms, biases everywhere."""

from typing import Final

from transformer_core._config_fields import ConfigFields
from transformer_core.family._config import DecoderConfig, Family
from transformer_core.family._fields import activation_of
from transformer_core.family._layer import DecoderLayer
from transformer_core.models.families._opt import fairseq_config, fairseq_keys

_FIRST: Final = 2  # number of the first position
_NAMES: Final = {"hidden_size": "d_model", "num_hidden_layers": "num_layers", "num_attention_heads": "attention_heads"}


def _read(fields: ConfigFields) -> DecoderConfig:
    fields = fields.renamed(_NAMES)
    hidden = fields.integer("hidden_size")
    if hidden % 2:
        fields.refuse("d_model", "an even number")
    return fairseq_config(
        fields,
        XGLM.architecture,
        intermediate=fields.integer("ffn_dim", 4096),
        activation=activation_of(fields, "activation_function", "gelu"),
        embedding_scale=hidden**0.5 if fields.boolean("scale_embedding", True) else 1.0,
        first_sinusoid=_FIRST,
    )


XGLM: Final = Family(
    "XGLMForCausalLM",
    "xglm",
    _read,
    DecoderLayer,
    lambda config: fairseq_keys("model", "layer_norm"),
    "model.layers.{}",
)
