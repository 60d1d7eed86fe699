"""Mamba-2 (arXiv:2405.21060): layers of one mixer each, without attention or positions."""

from typing import Final

from lang_core import DType, Module, WeightSource
from transformer_core._config_fields import ConfigFields
from transformer_core.checkpoints import Recipe, Stored
from transformer_core.family._config import DecoderConfig, Family
from transformer_core.family._fields import activation_of, token_ids_of
from transformer_core.family._layer import state_mixer
from transformer_core.family._layer_configs import Mamba2Config
from transformer_core.family._mamba_fields import check_steps, divisor_in, no_rope
from transformer_core.family._mixer_layer import MixerLayer
from transformer_core.layers._mamba2 import Mamba2Sizes

_PARTS: Final = {"model.embed_tokens.": "model.embeddings.", "model.norm.": "model.norm_f."}


def _read(fields: ConfigFields) -> DecoderConfig:
    check_steps(fields)
    hidden, layers, heads = (fields.integer(name) for name in ("hidden_size", "num_hidden_layers", "num_heads"))
    inner = hidden * fields.integer("expand", 2)
    if heads * fields.integer("head_dim", 64) != inner:
        fields.refuse("head_dim", f"hidden_size times expand ({inner}) over num_heads ({heads})")
    biased = fields.boolean("use_bias", False)
    sizes = Mamba2Sizes(
        heads=heads,
        head_size=inner // heads,
        groups=divisor_in(fields, "n_groups", 8, heads),
        state_size=fields.integer("state_size", 128),
        taps=fields.integer("conv_kernel", 4),
        conv_bias=fields.boolean("use_conv_bias", True),
        bias=biased,
        output_bias=biased,
        activation=activation_of(fields, default="silu"),
    )
    return DecoderConfig(
        architecture=MAMBA2.architecture,
        vocabulary=fields.integer("vocab_size"),
        hidden=hidden,
        intermediate=inner,
        layers=layers,
        heads=heads,
        kv_heads=sizes.groups,
        head_size=sizes.head_size,
        norm_eps=fields.number("layer_norm_epsilon", 1e-5),
        windows=(None,) * layers,
        tied=fields.boolean("tie_word_embeddings", False),
        mixer=Mamba2Config(layers=(True,) * layers, sizes=sizes),
        **no_rope(layers),
        **token_ids_of(fields),
    )


def mixer_layer(config: DecoderConfig, index: int, dtype: DType) -> Module:
    """Makes layer ``index`` of a model whose layers have a state mixer and nothing else."""
    return MixerLayer(config, dtype, state_mixer(config, dtype))


def backbone_key(name: str, source: WeightSource) -> str:
    """Returns the stored key of a parameter, below ``backbone.`` or, as transformers 5 may call it, ``model.``."""
    for part, stored in _PARTS.items():
        name = name.replace(part, stored)
    return name if source.has("model.embeddings.weight") else name.replace("model.", "backbone.", 1)


def _stored(name: str, shape: tuple[int, ...], source: WeightSource) -> Recipe:
    key = backbone_key(name, source)
    first = key.replace("embeddings.", "embedding.")  # of the first checkpoints
    return Stored(first if source.has(first) else key, shape)


MAMBA2: Final = Family("Mamba2ForCausalLM", "mamba2", _read, mixer_layer, lambda config: _stored, "backbone.layers.{}")
