"""Emu3, text (arXiv:2409.18869): a Llama whose vocabulary has tokens of pictures."""

from typing import Final

from transformer_core._config_fields import ConfigFields
from transformer_core.family._config import DecoderConfig, Family
from transformer_core.family._fields import llama_kind
from transformer_core.family._layer import DecoderLayer


def _read(fields: ConfigFields) -> DecoderConfig:
    """Reads the decoder's fields, which lie in ``text_config`` if the file is of the whole model."""
    text = fields.object("text_config") if fields.has("text_config") else fields
    values = {"num_key_value_heads": 8, "rms_norm_eps": 1e-5, "rope_theta": 1e6, **text.values}
    if text.has("rope_parameters"):
        values.pop("rope_theta")
    fields = ConfigFields(values, text.where)
    biased = fields.boolean("attention_bias", False)
    return llama_kind(
        fields,
        EMU3.architecture,
        qkv_bias=biased,
        output_bias=biased,
        mlp_bias=fields.boolean("mlp_bias", False),
    )


EMU3: Final = Family("Emu3ForCausalLM", "emu3", _read, DecoderLayer)
