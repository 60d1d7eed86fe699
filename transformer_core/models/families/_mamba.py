"""Mamba (arXiv:2312.00752) and Falcon-Mamba (arXiv:2410.05355): layers of one mixer each, without attention."""

import math
from typing import Any, Final

from lang_core import WeightSource
from transformer_core._config_fields import ConfigFields
from transformer_core.checkpoints import Recipe, Stored
from transformer_core.family._config import DecoderConfig, Family
from transformer_core.family._fields import activation_of, token_ids_of
from transformer_core.family._layer_configs import MambaConfig
from transformer_core.family._mamba_fields import no_rope
from transformer_core.layers._mamba import MambaSizes, StepNorms
from transformer_core.models.families._mamba2 import backbone_key, mixer_layer


def step_rank(fields: ConfigFields, name: str, hidden: int) -> int:
    """Reads the size of the step's input: a sixteenth of the hidden size if the file says nothing, or ``auto``."""
    return math.ceil(hidden / 16) if fields.values.get(name, "auto") in (None, "auto") else fields.integer(name)


def _read(fields: ConfigFields, architecture: str = "MambaForCausalLM", **norms: Any) -> DecoderConfig:
    hidden, layers = fields.integer("hidden_size"), fields.integer("num_hidden_layers")
    inner = hidden * fields.integer("expand", 2)
    sizes = MambaSizes(
        inner=inner,
        state_size=fields.integer("state_size", 16),
        rank=step_rank(fields, "time_step_rank", hidden),
        taps=fields.integer("conv_kernel", 4),
        conv_bias=fields.boolean("use_conv_bias", True),
        bias=fields.boolean("use_bias", False),
        activation=activation_of(fields, default="silu"),
        **norms,
    )
    return DecoderConfig(
        architecture=architecture,
        vocabulary=fields.integer("vocab_size"),
        hidden=hidden,
        intermediate=inner,
        layers=layers,
        heads=1,
        kv_heads=1,
        head_size=inner,
        norm_eps=fields.number("layer_norm_epsilon", 1e-5),
        windows=(None,) * layers,
        tied=fields.boolean("tie_word_embeddings", True),
        mixer=MambaConfig(layers=(True,) * layers, sizes=sizes),
        **no_rope(layers),
        **token_ids_of(fields),
    )


def _read_falcon(fields: ConfigFields) -> DecoderConfig:
    norms = {"norms": StepNorms.WEIGHTLESS, "norm_eps": fields.number("mixer_rms_eps", 1e-6)}
    return _read(fields, FALCON_MAMBA.architecture, **norms)


def _stored(name: str, shape: tuple[int, ...], source: WeightSource) -> Recipe:
    key = backbone_key(name, source)
    first = key.replace("embeddings.", "embedding.")  # of the first checkpoints
    return Stored(first if source.has(first) else key, shape)


_LAYERS: Final = "backbone.layers.{}"
MAMBA: Final = Family("MambaForCausalLM", "mamba", _read, mixer_layer, lambda config: _stored, _LAYERS)
FALCON_MAMBA: Final = Family(
    "FalconMambaForCausalLM", "falcon_mamba", _read_falcon, mixer_layer, lambda config: _stored, _LAYERS
)
