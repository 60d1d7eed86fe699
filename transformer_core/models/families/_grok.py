"""Grok: four norms per layer, capped scores and routers, scaled embeddings and logits, experts with gelu."""

from typing import Final

from transformer_core._config_fields import ConfigFields
from transformer_core.family._config import DecoderConfig, Family
from transformer_core.family._fields import heads_of, llama_kind, optional_number
from transformer_core.family._layer_configs import ExpertsConfig
from transformer_core.family._other_layers import SandwichLayer
from transformer_core.layers._feed_forward import Activation
from transformer_core.layers._routing import Routing

_NORMALIZED: Final = "norm_topk_prob"
_CAP: Final = 30.0
_MEAN: Final = 0.5**0.5


def _read(fields: ConfigFields) -> DecoderConfig:
    """Reads the fields of a GGUF file; of safetensors no computation is known to compare with."""
    if _NORMALIZED not in fields.values:
        fields.refuse(_NORMALIZED, "true, as of GGUF files: give a GGUF file, for safetensors of Grok are not read")
    heads, kv_heads, head_size = heads_of(fields)
    inner = fields.integer("moe_intermediate_size")
    dense = fields.boolean("residual_moe", False)
    routing = Routing(
        experts=fields.integer("num_local_experts"),
        chosen=fields.integer("num_experts_per_tok"),
        normalized=fields.boolean(_NORMALIZED, True),
        softcap=optional_number(fields, "router_logit_softcapping", _CAP),
    )
    layers = fields.integer("num_hidden_layers")
    return llama_kind(
        fields,
        GROK.architecture,
        heads=heads,
        kv_heads=kv_heads,
        head_size=head_size,
        activation=Activation.GELU_TANH,
        scale=fields.number("attn_output_multiplier", head_size**-0.5),
        softcap=optional_number(fields, "attn_logit_softcapping", _CAP),
        logits_softcap=optional_number(fields, "final_logit_softcapping", None),
        embedding_scale=fields.number("embedding_multiplier_scale"),
        logits_scale=fields.number("output_multiplier_scale"),
        experts=ExpertsConfig(
            routing=routing,
            inner=inner,
            layers=(True,) * layers,
            shared=fields.integer("intermediate_size") if dense else 0,
            sum_scale=_MEAN if dense else 1.0,
        ),
    )


GROK: Final = Family("Grok1ForCausalLM", "grok", _read, SandwichLayer)
