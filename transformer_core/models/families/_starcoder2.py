"""StarCoder2 (arXiv:2402.19173): layer norms, biases, a feed-forward without a gate, a window."""

from typing import Final

from transformer_core._config_fields import ConfigFields
from transformer_core.checkpoints import RenamedKeys
from transformer_core.family._config import DecoderConfig, Family
from transformer_core.family._fields import activation_of, llama_kind, one_window
from transformer_core.family._layer import DecoderLayer
from transformer_core.family._layer_configs import NormKind

_STORED: Final = {"up_proj": "c_fc", "down_proj": "c_proj"}


def _read(fields: ConfigFields) -> DecoderConfig:
    biased = fields.boolean("use_bias", True)
    return llama_kind(
        fields,
        STARCODER2.architecture,
        windows=one_window(fields, default=None),
        tied=fields.boolean("tie_word_embeddings", True),
        qkv_bias=biased,
        output_bias=biased,
        mlp_bias=biased,
        norm=NormKind.LAYER,
        norm_eps=fields.number("norm_epsilon", 1e-5),
        activation=activation_of(fields, default="gelu_pytorch_tanh"),
        gated_mlp=False,
    )


STARCODER2: Final = Family(
    "Starcoder2ForCausalLM", "starcoder2", _read, DecoderLayer, lambda config: RenamedKeys(_STORED)
)
