"""GPT-1 (Radford et al. 2018): a GPT-2 with norms after each addition, and none at the end."""

from dataclasses import replace
from typing import Final

from transformer_core._config_fields import ConfigFields
from transformer_core.checkpoints import RecipeOf
from transformer_core.family._config import DecoderConfig, Family
from transformer_core.family._other_layers import NormedSumLayer
from transformer_core.layers._feed_forward import Activation
from transformer_core.models.families._gpt2 import gpt2_kind, gpt2_stored

# Names of activations, of which transformers' gelu is the one by tanh.
_ACTIVATIONS: Final = {"gelu": Activation.GELU_TANH, "relu": Activation.RELU, "silu": Activation.SILU}
_ACTIVATIONS_BY_NAME: Final = {**_ACTIVATIONS, "swish": Activation.SILU}
_NAMES: Final = {"model.embed_tokens": "tokens_embed", "model.embed_positions": "positions_embed"}


def _read(fields: ConfigFields) -> DecoderConfig:
    activation = _ACTIVATIONS_BY_NAME[fields.choice("afn", _ACTIVATIONS_BY_NAME, "gelu")]
    values = {name: value for name, value in fields.values.items() if name not in ("n_inner", "activation_function")}
    values = {"n_positions": 512, **values}
    config = gpt2_kind(ConfigFields(values, fields.where), OPENAI_GPT.architecture)
    return replace(config, activation=activation, post_norm=True, final_norm=False)


def _stored(config: DecoderConfig) -> RecipeOf:
    return gpt2_stored(_NAMES)


OPENAI_GPT: Final = Family("OpenAIGPTLMHeadModel", "openai-gpt", _read, NormedSumLayer, _stored, "*h.{}")
