"""ModernBERT (Warner et al. 2024, arXiv:2412.13663): RoPE, gates, and layers with local attention."""

from typing import Any, Final

from transformer_core._config_fields import ConfigFields
from transformer_core.checkpoints import RenamedModules
from transformer_core.family._fields import activation_of, layer_types, whole_rope
from transformer_core.family._model import ModelFamily
from transformer_core.family._sentence import PoolingMode
from transformer_core.layers._rope_config import RopeConfig
from transformer_core.models.encoders._fused import FUSED_QKV, with_fused
from transformer_core.models.encoders._sentence_head import DENSE_NAMES
from transformer_core.models.encoders._stack import LocalLayers, StackConfig, labels_of
from transformer_core.models.encoders._text import HeadConfig, TextConfig, TextModel, with_pooling
from transformer_core.models.encoders._text_heads import TextForMaskedLM, TextForSequenceClassification
from transformer_core.models.encoders._token_heads import token_families

_FULL: Final = "full_attention"
_SLIDING: Final = "sliding_attention"
_GLOBAL_BASE: Final = 160_000.0
_LOCAL_BASE: Final = 10_000.0


def _read(fields: ConfigFields, architecture: str, **known: Any) -> TextConfig:
    return TextConfig(
        architecture=architecture,
        stack=_stack(fields, architecture),
        vocabulary=fields.integer("vocab_size"),
        positions=fields.integer("max_position_embeddings"),
        types=0,
        learned_positions=False,
        final_norm=True,
        **known,
    )


def _stack(fields: ConfigFields, architecture: str) -> StackConfig:
    hidden, heads = fields.integer("hidden_size"), fields.integer("num_attention_heads")
    if hidden % heads:
        fields.refuse("hidden_size", f"a multiple of num_attention_heads ({heads})")
    layers, every = fields.integer("num_hidden_layers"), fields.integer("global_attn_every_n_layers", 3)
    kinds = layer_types(fields, [_SLIDING if index % every else _FULL for index in range(layers)])
    near = frozenset(index for index, kind in enumerate(kinds) if kind == _SLIDING)
    attention_bias, mlp_bias = fields.boolean("attention_bias", False), fields.boolean("mlp_bias", False)
    rope = _rope(fields, architecture, hidden // heads, _FULL, "global_rope_theta", _GLOBAL_BASE)
    local = _rope(fields, architecture, hidden // heads, _SLIDING, "local_rope_theta", _LOCAL_BASE)
    distance = fields.integer("local_attention", 128) // 2  # on either side
    return StackConfig(
        hidden=hidden,
        intermediate=fields.integer("intermediate_size"),
        layers=layers,
        heads=heads,
        norm_eps=fields.number("norm_eps", 1e-5),
        activation=activation_of(fields, "hidden_activation", "gelu"),
        qkv_bias=attention_bias,
        output_bias=attention_bias,
        mlp_bias=mlp_bias,
        norm_bias=fields.boolean("norm_bias", False),
        gated_mlp=True,
        first_norm=False,
        rope=rope,
        local=LocalLayers(near, distance, local) if near else None,
    )


def _rope(
    fields: ConfigFields, architecture: str, head_size: int, kind: str, name: str, default_base: float
) -> RopeConfig:
    """Reads the RoPE of one kind of layers; ``name`` is its base's in transformers 4's form."""
    values: dict[str, Any] = {**fields.values, "rope_theta": fields.values.get(name)}
    if fields.has("rope_parameters"):
        ropes = fields.object("rope_parameters")
        values["rope_parameters"] = dict(ropes.object(kind).values) if ropes.has(kind) else {}
    return whole_rope(ConfigFields(values, fields.where), architecture, head_size, default_base=default_base)


_LAYER: Final = "encoder.layers.{}."
_NAMES: Final = {
    "embeddings.tokens": "embeddings.tok_embeddings",
    f"{_LAYER}self_attn.qkv_proj": "layers.{}.attn.Wqkv",
    f"{_LAYER}self_attn.o_proj": "layers.{}.attn.Wo",
    f"{_LAYER}attention_norm": "layers.{}.attn_norm",
    f"{_LAYER}mlp.gate_up_proj": "layers.{}.mlp.Wi",
    f"{_LAYER}mlp.down_proj": "layers.{}.mlp.Wo",
    f"{_LAYER}mlp_norm": "layers.{}.mlp_norm",
    **DENSE_NAMES,
    "norm": "final_norm",
    "head.bias": "decoder.bias",
}
_FUSED: Final = {**FUSED_QKV, "gate_proj": ("gate_up_proj", 0, 2), "up_proj": ("gate_up_proj", 1, 2)}
_KEYS: Final = with_fused(RenamedModules(_NAMES, above=("model.",)), _FUSED)
_ANSWER_KEYS: Final = with_fused(RenamedModules({**_NAMES, "qa_outputs": "classifier"}, above=("model.",)), _FUSED)


def _head(fields: ConfigFields) -> HeadConfig:
    return HeadConfig(
        activation_of(fields, "classifier_activation", "gelu"),
        bias=fields.boolean("classifier_bias", False),
        output_bias=fields.boolean("decoder_bias", True),
        pooling=PoolingMode(fields.choice("classifier_pooling", ("cls", "mean"), "cls")),
        aliases=("decoder.weight", ""),
    )


def _read_masked_lm(fields: ConfigFields) -> TextConfig:
    return _read(fields, "ModernBertForMaskedLM", head=_head(fields))


def _read_classifier(fields: ConfigFields) -> TextConfig:
    return _read(fields, "ModernBertForSequenceClassification", head=_head(fields), labels=labels_of(fields))


_ANY_LAYER: Final = "*layers.{}"
MODERNBERT: Final = (
    ModelFamily(
        "ModernBertModel",
        "modernbert",
        lambda fields: _read(fields, "ModernBertModel"),
        TextModel,
        lambda config: _KEYS,
        _ANY_LAYER,
        ("head.*", "decoder.*"),
        with_pooling,
    ),
    ModelFamily(
        "ModernBertForMaskedLM", "modernbert", _read_masked_lm, TextForMaskedLM, lambda config: _KEYS, _ANY_LAYER
    ),
    ModelFamily(
        "ModernBertForSequenceClassification",
        "modernbert",
        _read_classifier,
        TextForSequenceClassification,
        lambda config: _KEYS,
        _ANY_LAYER,
        ("decoder.*",),
    ),
    *token_families(
        "ModernBert", "modernbert", _read, _KEYS, _ANY_LAYER, ("decoder.*",), answers=_ANSWER_KEYS, head=_head
    ),
)
