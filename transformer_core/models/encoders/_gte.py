"""GTE 1.5 (Zhang et al. 2024, arXiv:2407.19669): a BERT with RoPE and gates, in transformers' form and as published."""

from collections.abc import Callable
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


# Supported values of fields of the published form that select other variants.
_PUBLISHED_FIXED: Final[dict[str, Any]] = {
    "layer_norm_type": "layer_norm",
    "logn_attention_clip1": False,
    "logn_attention_scale": False,
    "pack_qkv": True,
    "position_embedding_type": "rope",
}
_PUBLISHED_BASE: Final = 10_000.0


def _named_as_transformers(fields: ConfigFields) -> ConfigFields:
    """Returns the fields of transformers' form, from the published one.

    Its RoPE may have the fixed NTK scaling of https://kexue.fm/archives/9706: the base times the factor f, and all
    frequencies divided by f ** (2 / H), as a linear scaling divides them.
    """
    for name, value in _PUBLISHED_FIXED.items():
        if fields.values.get(name, value) not in (value, None):
            fields.refuse(name, f"{value!r}, or no such field")
    values = {**fields.values, "position_embedding_type": None}
    base = fields.number("rope_theta", _PUBLISHED_BASE, above=1.0)
    values["rope_theta"] = base
    if fields.has("rope_scaling"):
        scaling = fields.object("rope_scaling")
        scaling.choice("type", ("ntk",))
        if scaling.values.get("mixed_b") is not None:
            scaling.refuse("mixed_b", "null, or no such field")
        factor = scaling.number("factor", above=1.0)
        head_size = max(1, fields.integer("hidden_size") // fields.integer("num_attention_heads"))
        values["rope_theta"] = base * factor
        values["rope_scaling"] = {"rope_type": "linear", "factor": factor ** (2 / head_size)}
    return ConfigFields(values, fields.where)


def _read_published(fields: ConfigFields, architecture: str, **known: Any) -> TextConfig:
    return _read(_named_as_transformers(fields), architecture, **known)


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


def _families(name: str, model_type: str, read: Callable[..., TextConfig]) -> tuple[ModelFamily[TextConfig], ...]:
    model, masked, classifier = f"{name}Model", f"{name}ForMaskedLM", f"{name}ForSequenceClassification"
    return (
        ModelFamily(
            model,
            model_type,
            lambda fields: read(fields, model),
            TextModel,
            lambda config: _stored,
            _ANY_LAYER,
            (*_BUFFERS, "lm_head.*", "*pooler.dense.*"),
            with_pooling,
        ),
        ModelFamily(
            masked,
            model_type,
            lambda fields: read(fields, masked, head=_HEAD),
            TextForMaskedLM,
            lambda config: _stored,
            _ANY_LAYER,
            (*_BUFFERS, "*pooler.dense.*"),
        ),
        ModelFamily(
            classifier,
            model_type,
            lambda fields: read(fields, classifier, pooler=True, labels=labels_of(fields)),
            TextForSequenceClassification,
            lambda config: _stored,
            _ANY_LAYER,
            (*_BUFFERS, "lm_head.*"),
        ),
        token_families(name, model_type, read, _stored, _ANY_LAYER, (*_BUFFERS, "lm_head.*"))[0],
    )


GTE: Final = (*_families("Gte", "gte", _read), *_families("New", "new", _read_published))
