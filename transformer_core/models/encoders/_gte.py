"""GTE 1.5 (Zhang et al. 2024, arXiv:2407.19669): a BERT with RoPE and gates, in transformers' form and as published."""

from typing import Any, Final

from lang_core import WeightSource
from transformer_core._config_fields import ConfigFields
from transformer_core.checkpoints import Recipe, RenamedModules
from transformer_core.family._fields import whole_rope
from transformer_core.family._model import ModelFamily
from transformer_core.layers._feed_forward import Activation
from transformer_core.models.encoders._bert import read_bert, read_post_norm_stack
from transformer_core.models.encoders._fused import FUSED_QKV, with_fused
from transformer_core.models.encoders._sentence_head import DENSE_NAMES
from transformer_core.models.encoders._stack import labels_of
from transformer_core.models.encoders._text import HeadConfig, TextConfig, TextModel, with_pooling
from transformer_core.models.encoders._text_heads import TextForMaskedLM, TextForSequenceClassification
from transformer_core.models.encoders._token_heads import token_families

_BASE: Final = 160_000.0
_LAYER: Final = "encoder.layers.{}."
_PLAIN: Final = {
    "embeddings.tokens": "embeddings.word_embeddings",
    "embeddings.types": "embeddings.token_type_embeddings",
    "embeddings.norm": "embeddings.LayerNorm",
    **DENSE_NAMES,
    "pooler": "pooler.dense",
    "head.dense": "lm_head.dense",
    "head.bias": "lm_head.decoder.bias",
}
_ABOVE: Final = ("gte.", "new.")
_STORED: Final = "layers.{}."
_KEYS: Final = RenamedModules(
    {
        **_PLAIN,
        "head.norm": "lm_head.layer_norm",
        **{f"{_LAYER}self_attn.{part}_proj": f"{_STORED}self_attn.{part}_proj" for part in "qkvo"},
        **{f"{_LAYER}mlp.{part}_proj": f"{_STORED}mlp.{part}_proj" for part in ("gate", "up", "down")},
        f"{_LAYER}attention_norm": f"{_STORED}post_attention_layernorm",
        f"{_LAYER}mlp_norm": f"{_STORED}post_mlp_layernorm",
    },
    above=_ABOVE,
)
_PUBLISHED: Final = "encoder.layer.{}."
_PUBLISHED_KEYS: Final = with_fused(
    RenamedModules(
        {
            **_PLAIN,
            "head.norm": "lm_head.norm",
            f"{_LAYER}self_attn.qkv_proj": f"{_PUBLISHED}attention.qkv_proj",
            f"{_LAYER}self_attn.o_proj": f"{_PUBLISHED}attention.o_proj",
            f"{_LAYER}mlp.up_gate_proj": f"{_PUBLISHED}mlp.up_gate_proj",
            f"{_LAYER}mlp.down_proj": f"{_PUBLISHED}mlp.down_proj",
            f"{_LAYER}attention_norm": f"{_PUBLISHED}attn_ln",
            f"{_LAYER}mlp_norm": f"{_PUBLISHED}mlp_ln",
        },
        above=_ABOVE,
    ),
    {**FUSED_QKV, "up_proj": ("up_gate_proj", 0, 2), "gate_proj": ("up_gate_proj", 1, 2)},
)


def _stored(name: str, shape: tuple[int, ...], source: WeightSource) -> Recipe | None:
    """Returns the recipe of a parameter, in transformers' form or in the published one."""
    published = any(source.has(f"{above}encoder.layer.0.attn_ln.weight") for above in ("", *_ABOVE))
    return (_PUBLISHED_KEYS if published else _KEYS)(name, shape, source)


def _read(fields: ConfigFields, architecture: str, **known: Any) -> TextConfig:
    hidden, heads = fields.integer("hidden_size"), fields.integer("num_attention_heads")
    head_size = fields.integer("head_dim", hidden // heads) if hidden >= heads else 1
    stack = read_post_norm_stack(
        fields,
        gated_mlp=True,
        mlp_bias=False,
        down_bias=True,
        rope=whole_rope(fields, architecture, head_size, default_base=_BASE),
        **({"head_size": head_size} if fields.has("head_dim") else {}),
    )
    types = fields.integer("type_vocab_size", 1, minimum=0)
    return read_bert(fields, architecture, stack=stack, types=types, learned_positions=False, **known)


_ANY_LAYER: Final = "*layer*.{}"
_BUFFERS: Final = ("*embeddings.position_ids", "*inv_freq")
_HEAD: Final = HeadConfig(Activation.GELU, aliases=("lm_head.decoder.weight", ""))


def _families(name: str, model_type: str) -> tuple[ModelFamily[TextConfig], ...]:
    model, masked, classifier = f"{name}Model", f"{name}ForMaskedLM", f"{name}ForSequenceClassification"
    return (
        ModelFamily(
            model,
            model_type,
            lambda fields: _read(fields, model),
            TextModel,
            lambda config: _stored,
            _ANY_LAYER,
            (*_BUFFERS, "lm_head.*", "*pooler.dense.*"),
            with_pooling,
        ),
        ModelFamily(
            masked,
            model_type,
            lambda fields: _read(fields, masked, head=_HEAD),
            TextForMaskedLM,
            lambda config: _stored,
            _ANY_LAYER,
            (*_BUFFERS, "*pooler.dense.*"),
        ),
        ModelFamily(
            classifier,
            model_type,
            lambda fields: _read(fields, classifier, pooler=True, labels=labels_of(fields)),
            TextForSequenceClassification,
            lambda config: _stored,
            _ANY_LAYER,
            (*_BUFFERS, "lm_head.*"),
        ),
        token_families(name, model_type, _read, _stored, _ANY_LAYER, (*_BUFFERS, "lm_head.*"))[0],
    )


GTE: Final = _families("Gte", "gte")
