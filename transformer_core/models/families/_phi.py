"""Phi-1, 1.5 and 2: attention and feed-forward side by side behind one layer norm, biases everywhere."""

from typing import Final

from transformer_core._config_fields import ConfigFields
from transformer_core.checkpoints import RenamedKeys
from transformer_core.family._config import DecoderConfig, Family
from transformer_core.family._fields import activation_of, heads_of, llama_kind
from transformer_core.family._layer_configs import NormKind
from transformer_core.layers._attention_config import QueryKeyNormKind
from transformer_core.layers._rope_config import RopeConfig
from transformer_core.models.families._cohere import one_norm_layer

_STORED: Final = {
    "o_proj": "dense",
    "up_proj": "fc1",
    "down_proj": "fc2",
    "norm": "final_layernorm",
    "q_norm": "q_layernorm",
    "k_norm": "k_layernorm",
}


def _read(fields: ConfigFields) -> DecoderConfig:
    heads, kv_heads, head_size = heads_of(fields, kv_heads_default=True)
    return llama_kind(
        fields,
        PHI.architecture,
        heads=heads,
        kv_heads=kv_heads,
        head_size=head_size,
        rope=RopeConfig.from_hf(fields, head_size, default_share=0.5),
        qkv_bias=True,
        output_bias=True,
        mlp_bias=True,
        tied=fields.boolean("tie_word_embeddings", False),
        head_bias=True,
        qk_norm=fields.boolean("qk_layernorm", False),
        qk_norm_kind=QueryKeyNormKind.LAYER,
        norm=NormKind.LAYER,
        norm_eps=fields.number("layer_norm_eps", 1e-5),
        activation=activation_of(fields, default="gelu_new"),
        gated_mlp=False,
        parallel=True,
    )


PHI: Final = Family("PhiForCausalLM", "phi", _read, one_norm_layer, lambda config: RenamedKeys(_STORED))
