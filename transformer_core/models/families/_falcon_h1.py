"""Falcon-H1 (arXiv:2507.22448): attention and Mamba-2 side by side in each layer, scales everywhere."""

from typing import Final

from transformer_core._config_fields import ConfigFields
from transformer_core.checkpoints import RenamedModules
from transformer_core.family._config import DecoderConfig, Family
from transformer_core.family._fields import heads_of, llama_kind
from transformer_core.family._mamba_fields import mamba_sizes
from transformer_core.family._side_by_side import SideBySideConfig, SideBySideLayer
from transformer_core.layers._mamba2 import GateOrder

_EPS: Final = 1e-5  # transformers' defaults
_INNER: Final = 1024


def _read(fields: ConfigFields) -> DecoderConfig:
    heads, kv_heads, head_size = heads_of(fields)
    biased, layers = fields.boolean("attention_bias", False), fields.integer("num_hidden_layers")
    return llama_kind(
        fields,
        FALCON_H1.architecture,
        heads=heads,
        kv_heads=kv_heads,
        head_size=head_size,
        norm_eps=fields.number("rms_norm_eps", _EPS),
        qkv_bias=biased,
        output_bias=biased,
        mlp_bias=fields.boolean("mlp_bias", False),
        scale=head_size**-0.5 * fields.number("key_multiplier", 1.0),
        embedding_scale=fields.number("embedding_multiplier", 1.0),
        logits_scale=fields.number("lm_head_multiplier", 1.0),
        mixer=_mixers(fields, layers),
    )


def _mixers(fields: ConfigFields, layers: int) -> SideBySideConfig:
    inner = fields.integer("mamba_d_ssm", _INNER)
    if "mamba_d_ssm" in fields.values and not fields.has("mamba_d_ssm"):
        inner = fields.integer("hidden_size") * fields.integer("mamba_expand", 2)
    order = GateOrder.NORM_FIRST if fields.boolean("mamba_norm_before_gate", True) else GateOrder.GATE_FIRST
    sizes = mamba_sizes(
        fields,
        inner,
        output_bias=fields.boolean("projectors_bias", False),
        gate=order if fields.boolean("mamba_rms_norm", False) else GateOrder.NO_NORM,
        input_scale=fields.number("ssm_in_multiplier", 1.0),
        scales=_numbers(fields, "ssm_multipliers", 5),
    )
    return SideBySideConfig(
        layers=(True,) * layers,
        sizes=sizes,
        attention_input=fields.number("attention_in_multiplier", 1.0),
        attention=fields.number("attention_out_multiplier", 1.0),
        mamba=fields.number("ssm_out_multiplier", 1.0),
        mlp=_numbers(fields, "mlp_multipliers", 2),
    )


def _numbers(fields: ConfigFields, name: str, count: int) -> tuple[float, ...]:
    return fields.numbers(name, count) if fields.has(name) else (1.0,) * count


_KEYS: Final = RenamedModules({"model.norm": "model.final_layernorm"})
FALCON_H1: Final = Family("FalconH1ForCausalLM", "falcon_h1", _read, SideBySideLayer, lambda config: _KEYS)
