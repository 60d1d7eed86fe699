"""nanochat: norms without weights everywhere, also of embeddings; RoPE that turns the other way, squared relu."""

from dataclasses import replace
from typing import Final

from transformer_core._config_fields import ConfigFields
from transformer_core.checkpoints import RenamedKeys
from transformer_core.family._config import DecoderConfig, Family
from transformer_core.family._fields import activation_of, heads_of, llama_kind, optional_number, whole_rope
from transformer_core.family._layer import DecoderLayer
from transformer_core.family._layer_configs import NormKind

_STORED: Final = {"up_proj": "fc1", "down_proj": "fc2"}


def _read(fields: ConfigFields) -> DecoderConfig:
    heads, kv_heads, head_size = heads_of(fields, kv_heads_default=True)
    biased = fields.boolean("attention_bias", False)
    return llama_kind(
        fields,
        NANOCHAT.architecture,
        heads=heads,
        kv_heads=kv_heads,
        head_size=head_size,
        rope=replace(whole_rope(fields, NANOCHAT.architecture, head_size), clockwise=True),
        qkv_bias=biased,
        output_bias=biased,
        qk_norm=True,
        qk_norm_after_rope=True,
        qk_norm_weighted=False,
        norm=NormKind.RMS_WITHOUT_WEIGHT,
        norm_eps=fields.number("rms_norm_eps", 1e-6),
        embedding_norm=True,
        activation=activation_of(fields, default="relu2"),
        gated_mlp=False,
        logits_softcap=optional_number(fields, "final_logit_softcapping", 15.0),
    )


NANOCHAT: Final = Family("NanoChatForCausalLM", "nanochat", _read, DecoderLayer, lambda config: RenamedKeys(_STORED))
