"""Nomic-BERT (Nussbaum et al. 2024, arXiv:2402.01613): a BERT with RoPE and gates, and without most biases."""

from typing import Any, Final

from lang_core import WeightSource
from transformer_core._config_fields import ConfigFields
from transformer_core.checkpoints import Recipe, RenamedModules
from transformer_core.family._fields import activation_of, whole_rope
from transformer_core.family._model import ModelFamily
from transformer_core.layers._routing import Routing
from transformer_core.models.encoders._bert import read_bert, read_post_norm_stack
from transformer_core.models.encoders._fused import FUSED_QKV, with_fused
from transformer_core.models.encoders._sentence_head import DENSE_NAMES
from transformer_core.models.encoders._stack import ExpertLayers, labels_of
from transformer_core.models.encoders._text import HeadConfig, TextConfig, TextModel, with_pooling
from transformer_core.models.encoders._text_heads import TextForMaskedLM, TextForSequenceClassification
from transformer_core.models.encoders._token_heads import token_families

_BASE: Final = 1000.0

# Fields of the form that the models' authors published, which transformers has under other names.
_OLD_NAMES: Final = {
    "n_embd": "hidden_size",
    "n_head": "num_attention_heads",
    "n_inner": "intermediate_size",
    "n_layer": "num_hidden_layers",
    "n_positions": "max_position_embeddings",
    "layer_norm_epsilon": "layer_norm_eps",
    "rotary_emb_base": "rope_theta",
}

# Supported values of fields of that form that select other variants.
_OLD_FIXED: Final[dict[str, Any]] = {
    "activation_function": "swiglu",
    "causal": False,
    "mlp_fc1_bias": False,
    "mlp_fc2_bias": False,
    "num_experts": 0,
    "parallel_block": False,
    "prenorm": False,
    "qkv_proj_bias": False,
    "rotary_emb_fraction": 1.0,
    "rotary_emb_interleaved": False,
    "rotary_emb_scale_base": None,
    "rotary_scaling_factor": None,
    "scale_attn_by_inverse_layer_idx": False,
    "use_rms_norm": False,
}


def _named_as_transformers(fields: ConfigFields) -> ConfigFields:
    """Returns the fields of transformers' form, from either one."""
    if not fields.has("n_embd"):
        return fields
    for name, value in _OLD_FIXED.items():
        if fields.values.get(name, value) not in (value, None):
            fields.refuse(name, f"{value!r}, or no such field")
    renamed = {new: fields.values[old] for old, new in _OLD_NAMES.items() if fields.has(old)}
    return ConfigFields({**fields.values, **renamed}, fields.where)


def _read(fields: ConfigFields, architecture: str, **known: Any) -> TextConfig:
    fields = _named_as_transformers(fields)
    hidden, heads = fields.integer("hidden_size"), fields.integer("num_attention_heads")
    if not fields.has("head_dim") and hidden % heads:
        fields.refuse("hidden_size", f"a multiple of num_attention_heads ({heads}), or a field head_dim")
    head_size = fields.integer("head_dim", hidden // heads)
    experts = _experts(fields)
    biased = experts is not None  # gates or biases
    stack = read_post_norm_stack(
        fields,
        activation=_activation(fields),
        head_size=head_size,
        qkv_bias=biased,
        output_bias=biased,
        mlp_bias=biased,
        gated_mlp=not biased,
        experts=experts,
        rope=whole_rope(fields, architecture, head_size, default_base=_BASE),
    )
    return read_bert(fields, architecture, stack=stack, learned_positions=False, **known)


def _experts(fields: ConfigFields) -> ExpertLayers | None:
    """Reads the mixtures of experts of Nomic Embed 2 (arXiv:2502.07972): the second of every so many layers has one."""
    count = fields.integer("num_experts", 0, minimum=0)
    if not count:
        return None
    every, layers = fields.integer("moe_every_n_layers", minimum=2), fields.integer("num_hidden_layers")
    routing = Routing(experts=count, chosen=fields.integer("num_experts_per_tok"), normalized=False)
    return ExpertLayers(frozenset(range(1, layers, every)), routing)


def _activation(fields: ConfigFields) -> Any:
    return activation_of(fields, default="silu")


_LAYER: Final = "encoder.layers.{}."
_STORED: Final = "layers.{}."
_PLAIN: Final = {
    "embeddings.tokens": "embeddings.word_embeddings",
    "embeddings.types": "embeddings.token_type_embeddings",
    **DENSE_NAMES,
    "pooler": "pooler.dense",
    "head.dense": "cls.predictions.transform.dense",
    "head.norm": "cls.predictions.transform.layer_norm",
    "head.bias": "cls.predictions.bias",
}
_ABOVE: Final = ("nomic_bert.", "bert.")
_KEYS: Final = RenamedModules(
    {
        **_PLAIN,
        "embeddings.norm": "embeddings.LayerNorm",
        **{f"{_LAYER}self_attn.{part}_proj": f"{_STORED}self_attn.{part}_proj" for part in "qkvo"},
        **{f"{_LAYER}mlp.{part}_proj": f"{_STORED}mlp.{part}_proj" for part in ("gate", "up", "down")},
        f"{_LAYER}attention_norm": f"{_STORED}post_attention_layernorm",
        f"{_LAYER}mlp_norm": f"{_STORED}post_mlp_layernorm",
    },
    above=_ABOVE,
)
_OLD_KEYS: Final = with_fused(
    RenamedModules(
        {
            **_PLAIN,
            "embeddings.norm": "emb_ln",
            f"{_LAYER}self_attn.qkv_proj": f"{_LAYER}attn.Wqkv",
            f"{_LAYER}self_attn.o_proj": f"{_LAYER}attn.out_proj",
            f"{_LAYER}mlp.up_proj": f"{_LAYER}mlp.fc11",
            f"{_LAYER}mlp.gate_proj": f"{_LAYER}mlp.fc12",
            f"{_LAYER}mlp.down_proj": f"{_LAYER}mlp.fc2",
            f"{_LAYER}attention_norm": f"{_LAYER}norm1",
            f"{_LAYER}mlp_norm": f"{_LAYER}norm2",
        },
        above=_ABOVE,
    ),
    FUSED_QKV,
)


def _stored(name: str, shape: tuple[int, ...], source: WeightSource) -> Recipe | None:
    """Returns the recipe of a parameter, in transformers' form or in the one that was published."""
    published = any(source.has(f"{above}emb_ln.weight") for above in ("", *_ABOVE))
    return (_OLD_KEYS if published else _KEYS)(name, shape, source)


def _read_masked_lm(fields: ConfigFields) -> TextConfig:
    aliases = ("cls.predictions.decoder.weight", "cls.predictions.decoder.bias")
    return _read(fields, "NomicBertForMaskedLM", head=HeadConfig(_activation(fields), aliases=aliases))


def _read_classifier(fields: ConfigFields) -> TextConfig:
    return _read(fields, "NomicBertForSequenceClassification", pooler=True, labels=labels_of(fields))


_ANY_LAYER: Final = "*layers.{}"
_BUFFERS: Final = ("*embeddings.position_ids", "*inv_freq")
NOMIC_BERT: Final = (
    ModelFamily(
        "NomicBertModel",
        "nomic_bert",
        lambda fields: _read(fields, "NomicBertModel"),
        TextModel,
        lambda config: _stored,
        _ANY_LAYER,
        (*_BUFFERS, "cls.*", "*pooler.dense.*"),
        with_pooling,
    ),
    ModelFamily(
        "NomicBertForMaskedLM",
        "nomic_bert",
        _read_masked_lm,
        TextForMaskedLM,
        lambda config: _stored,
        _ANY_LAYER,
        (*_BUFFERS, "*pooler.dense.*"),
    ),
    ModelFamily(
        "NomicBertForSequenceClassification",
        "nomic_bert",
        _read_classifier,
        TextForSequenceClassification,
        lambda config: _stored,
        _ANY_LAYER,
        _BUFFERS,
    ),
    token_families("NomicBert", "nomic_bert", _read, _stored, _ANY_LAYER, (*_BUFFERS, "cls.*"))[0],
)
