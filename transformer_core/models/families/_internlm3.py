"""InternLM3 and IQuest-Coder: a Llama whose biases InternLM3 names otherwise."""

from typing import Any, Final

from transformer_core._config_fields import ConfigFields
from transformer_core.family._config import DecoderConfig, Family
from transformer_core.family._fields import heads_of, llama_kind
from transformer_core.family._layer import DecoderLayer

_HEAD_SIZE: Final = 128  # transformers' default


def _read(fields: ConfigFields) -> DecoderConfig:
    fields = fields.renamed({"attention_bias": "qkv_bias", "mlp_bias": "bias"})
    biased, further = fields.boolean("attention_bias", False), fields.boolean("mlp_bias", False)
    values = {name: value for name, value in fields.values.items() if name not in ("qkv_bias", "bias")}
    known = {"qkv_bias": biased, "output_bias": further, "mlp_bias": further}
    return _llama(ConfigFields(values, fields.where), INTERNLM3.architecture, 2, **known)


def _read_iquestcoder(fields: ConfigFields) -> DecoderConfig:
    biased = fields.boolean("attention_bias", False)
    known = {"qkv_bias": biased, "output_bias": biased, "mlp_bias": fields.boolean("mlp_bias", False)}
    return _llama(fields, IQUESTCODER.architecture, 8, **known)


def _llama(fields: ConfigFields, architecture: str, kv_heads: int, **known: Any) -> DecoderConfig:
    """Reads a Llama with the defaults of transformers; ``kv_heads`` counts if the file does not say it."""
    values: dict[str, Any] = {"num_key_value_heads": kv_heads, **fields.values}
    if "head_dim" not in values:
        values["head_dim"] = _HEAD_SIZE
    fields = ConfigFields(values, fields.where)
    heads, kv_heads, head_size = heads_of(fields)
    sizes = {"heads": heads, "kv_heads": kv_heads, "head_size": head_size}
    return llama_kind(fields, architecture, **sizes, norm_eps=fields.number("rms_norm_eps", 1e-5), **known)


INTERNLM3: Final = Family("InternLM3ForCausalLM", "internlm3", _read, DecoderLayer)
IQUESTCODER: Final = Family("IQuestCoderForCausalLM", "iquestcoder", _read_iquestcoder, DecoderLayer)
