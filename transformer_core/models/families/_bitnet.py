"""BitNet b1.58 (arXiv:2504.12285): a Llama with norms before attention's and the feed-forward's last projection."""

from typing import Final

from lang_core import DType
from transformer_core._config_fields import ConfigFields
from transformer_core.checkpoints import RenamedKeys
from transformer_core.family._config import DecoderConfig, Family
from transformer_core.family._fields import activation_of, heads_of, llama_kind
from transformer_core.family._layer import DecoderLayer
from transformer_core.layers._feed_forward import NormedSwiGLU

_STORED: Final = {"o_norm": "attn_sub_norm", "down_norm": "ffn_sub_norm"}


class _BitNetLayer(DecoderLayer):
    """``DecoderLayer`` with a norm inside of the feed-forward."""

    def __init__(self, config: DecoderConfig, index: int, dtype: DType) -> None:
        super().__init__(config, index, dtype)
        kinds = {"activation": config.activation, "bias": config.mlp_bias, "eps": config.norm_eps}
        self.mlp = NormedSwiGLU(config.hidden, config.intermediate, dtype=dtype, **kinds)


def _read(fields: ConfigFields) -> DecoderConfig:
    fields = ConfigFields({"rope_theta": 5e5, **fields.values}, fields.where)
    heads, kv_heads, head_size = heads_of(fields, kv_heads_default=True)
    biased = fields.boolean("attention_bias", False)
    if heads * head_size != fields.integer("hidden_size"):
        fields.refuse("head_dim", f"hidden_size / num_attention_heads, for the norm of all {heads} heads")
    return llama_kind(
        fields,
        BITNET.architecture,
        heads=heads,
        kv_heads=kv_heads,
        head_size=head_size,
        qkv_bias=biased,
        output_bias=biased,
        output_norm=True,
        norm_eps=fields.number("rms_norm_eps", 1e-5),
        activation=activation_of(fields, default="relu2"),
    )


BITNET: Final = Family("BitNetForCausalLM", "bitnet", _read, _BitNetLayer, lambda config: RenamedKeys(_STORED))
