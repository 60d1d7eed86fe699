"""NeoBERT (Le Breton et al. 2025, arXiv:2502.19587): RoPE, RMSNorms and gates in place of a BERT's, as published.

Rows of the projection ``qkv`` are those of query, key and value of one head, then of the next one.
"""

from typing import Any, Final

from transformer_core._config_fields import ConfigFields
from transformer_core.checkpoints import GroupedParts, RecipeOf, RenamedModules, first_of
from transformer_core.family._model import ModelFamily
from transformer_core.layers._feed_forward import Activation
from transformer_core.layers._rope_config import RopeConfig, RopeMode
from transformer_core.models.encoders._bert import read_bert
from transformer_core.models.encoders._fused import with_fused
from transformer_core.models.encoders._sentence_head import DENSE_NAMES
from transformer_core.models.encoders._stack import StackConfig, labels_of
from transformer_core.models.encoders._text import HeadConfig, TextConfig, TextModel, with_pooling
from transformer_core.models.encoders._text_heads import TextForMaskedLM, TextForSequenceClassification

_LAYER: Final = "encoder.layers.{}."
_STORED: Final = "transformer_encoder.{}."
_KEYS: Final = RenamedModules(
    {
        "embeddings.tokens": "encoder",
        f"{_LAYER}self_attn.qkv": f"{_STORED}qkv",
        f"{_LAYER}self_attn.o_proj": f"{_STORED}wo",
        f"{_LAYER}mlp.w12": f"{_STORED}ffn.w12",
        f"{_LAYER}mlp.down_proj": f"{_STORED}ffn.w3",
        f"{_LAYER}attention_norm": f"{_STORED}attention_norm",
        f"{_LAYER}mlp_norm": f"{_STORED}ffn_norm",
        "norm": "layer_norm",
        **DENSE_NAMES,
        "head.decoder": "decoder",
        "head.bias": "decoder.bias",
        "pooler": "dense",
    },
    above=("model.",),
)
_GATED: Final = with_fused(_KEYS, {"gate_proj": ("w12", 0, 2), "up_proj": ("w12", 1, 2)})
_PARTS: Final = {"q_proj": (0, 1), "k_proj": (1, 1), "v_proj": (2, 1)}
_HEAD: Final = HeadConfig(Activation.SILU, plain=True)
_UNUSED: Final = ("*freqs_cis",)
_MULTIPLE: Final = 8  # of the feed-forward's size, which is two thirds of the one that is named


def _stored(config: TextConfig) -> RecipeOf:
    return first_of(GroupedParts(_KEYS, "qkv", config.stack.heads, _PARTS), _GATED)


def _read(fields: ConfigFields, architecture: str, **known: Any) -> TextConfig:
    hidden, heads = fields.integer("hidden_size", 768), fields.integer("num_attention_heads", 12)
    if hidden % heads or hidden // heads % 2:
        fields.refuse("hidden_size", f"an even multiple of num_attention_heads ({heads}), for RoPE turns pairs")
    if fields.boolean("ngpt", False):
        fields.refuse("ngpt", "false, or no such field")
    positions = fields.integer("max_length", 1024)
    two_thirds = int(2 * fields.integer("intermediate_size", 3072) / 3)
    stack = StackConfig(
        hidden=hidden,
        intermediate=-(-two_thirds // _MULTIPLE) * _MULTIPLE,
        layers=fields.integer("num_hidden_layers", 28),
        heads=heads,
        norm_eps=fields.number("norm_eps", 1e-6),
        activation=Activation.SILU,
        rms_norm=True,
        gated_mlp=True,
        mlp_bias=False,
        qkv_bias=False,
        output_bias=False,
        rope=RopeConfig(rotated=hidden // heads, trained_length=positions, mode=RopeMode.INTERLEAVED),
    )
    return read_bert(
        ConfigFields({**fields.values, "tie_word_embeddings": None}, fields.where),
        architecture,
        stack=stack,
        positions=positions,
        types=0,
        learned_positions=False,
        embedding_norm=False,
        final_norm=True,
        **known,
    )


_LAYER_KEY: Final = "*transformer_encoder.{}"
_CLASSIFIER: Final = "NeoBERTForSequenceClassification"
NEOBERT: Final = (
    ModelFamily(
        "NeoBERT",
        "neobert",
        lambda fields: _read(fields, "NeoBERT"),
        TextModel,
        _stored,
        _LAYER_KEY,
        (*_UNUSED, "decoder.*"),
        with_pooling,
    ),
    ModelFamily(
        "NeoBERTLMHead",
        "neobert",
        lambda fields: _read(fields, "NeoBERTLMHead", head=_HEAD),
        TextForMaskedLM,
        _stored,
        _LAYER_KEY,
        _UNUSED,
    ),
    ModelFamily(
        _CLASSIFIER,
        "neobert",
        lambda fields: _read(fields, _CLASSIFIER, pooler=True, labels=labels_of(fields)),
        TextForSequenceClassification,
        _stored,
        _LAYER_KEY,
        (*_UNUSED, "decoder.*"),
    ),
)
