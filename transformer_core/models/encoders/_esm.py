"""ESM 1b and 2 (Lin et al. 2023, doi:10.1126/science.ade2574): encoders of proteins, with RoPE or learned positions."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, Final

from lang_core import WeightSource
from transformer_core._config_fields import ConfigFields
from transformer_core.checkpoints import Computed, Recipe, RecipeOf, RenamedModules, Stored
from transformer_core.family._model import ModelFamily
from transformer_core.layers._feed_forward import Activation
from transformer_core.layers._rope import inverse_frequencies
from transformer_core.layers._rope_config import RopeConfig
from transformer_core.models.encoders._bert import ANY_LAYER, BERT_NAMES, read_bert, read_post_norm_stack
from transformer_core.models.encoders._roberta import (
    CLASSIFIER_NAMES,
    HEAD_NAMES,
    MASKED_LM_HEAD,
    positions_after_padding,
)
from transformer_core.models.encoders._stack import labels_of
from transformer_core.models.encoders._text import TextConfig, TextModel, with_pooling
from transformer_core.models.encoders._text_heads import TextForMaskedLM, TextForSequenceClassification
from transformer_core.models.encoders._token_heads import token_families

_NAMES: Final = {
    **BERT_NAMES,
    "embeddings.norm": "embeddings.layer_norm",
    "encoder.layers.{}.attention_norm": "encoder.layer.{}.attention.LayerNorm",
    "encoder.layers.{}.mlp_norm": "encoder.layer.{}.LayerNorm",
    "norm": "encoder.emb_layer_norm_after",
}
_ABOVE: Final = ("esm.",)
_KEYS: Final = RenamedModules({**_NAMES, **HEAD_NAMES}, above=_ABOVE)
_CLASSIFIER_KEYS: Final = RenamedModules({**_NAMES, **CLASSIFIER_NAMES}, above=_ABOVE)
_ROTARY: Final = "rotary_embeddings.inv_freq"
_FOLDERS: Final = ("", "encoder.layer.*.attention.self.", "encoder.layer.0.attention.self.")
_UNUSED: Final = (
    "*embeddings.position_ids",
    "*embeddings.position_embeddings.*",
    "*inv_freq",
    "*contact_head.*",
)
_TRAINED_LENGTH: Final = 1026
_BASE: Final = 10_000.0


def _read(fields: ConfigFields, architecture: str, **known: Any) -> TextConfig:
    if fields.boolean("is_folding_model", False):
        fields.refuse("is_folding_model", "false, or no such field")
    kind = fields.choice("position_embedding_type", ("absolute", "rotary"), "absolute")
    hidden, heads = fields.integer("hidden_size", 768), fields.integer("num_attention_heads", 12)
    if hidden % heads:
        fields.refuse("hidden_size", f"a multiple of num_attention_heads ({heads})")
    length = fields.integer("max_position_embeddings", _TRAINED_LENGTH)
    if kind == "rotary":
        base = fields.number("rope_theta", _BASE, above=1.0)
        rope = RopeConfig(rotated=hidden // heads, base=base, trained_length=length)
        places: dict[str, Any] = {"learned_positions": False, "positions": length}
    else:
        rope, places = None, positions_after_padding(fields, fields.integer("pad_token_id", minimum=0))
    plain = ConfigFields({**fields.values, "position_embedding_type": None}, fields.where)
    stack = replace(
        read_post_norm_stack(plain, activation=Activation.GELU, rope=rope, stored_rope=rope is not None),
        post_norm=False,
    )
    dropout = fields.boolean("token_dropout", False)
    return read_bert(
        plain,
        architecture,
        stack=stack,
        types=0,
        embedding_norm=fields.boolean("emb_layer_norm_before", False),
        final_norm=True,
        zero_padding=True,
        dropped_token=fields.integer("mask_token_id", minimum=0) if dropout else None,
        **places,
        **known,
    )


def _recipes(keys: RenamedModules, config: TextConfig) -> RecipeOf:
    """Returns recipes that take the frequencies of RoPE as they are stored: once, or by layer; else computed."""

    def recipe(name: str, shape: tuple[int, ...], source: WeightSource) -> Recipe | None:
        if name != "encoder.inv_freq" or config.stack.rope is None:
            return keys(name, shape, source)
        folders = [f"{above}{folder}" for above in ("", *_ABOVE) for folder in _FOLDERS]
        key = next((f"{folder}{_ROTARY}" for folder in folders if source.has(f"{folder}{_ROTARY}")), None)
        if key is not None:
            return Stored(key, shape)
        beside, frequencies = keys.key("embeddings.tokens.weight", source), inverse_frequencies(config.stack.rope)
        whole = (config.vocabulary, config.stack.hidden)
        return Computed(beside, whole, lambda start, stop: frequencies[start:stop])

    return recipe


def _family(
    kind: str, make: Callable[..., TextModel], keys: RenamedModules, unused: tuple[str, ...], **known: Any
) -> ModelFamily[TextConfig]:
    name, labels = f"Esm{kind}", "Classification" in kind

    def read(fields: ConfigFields) -> TextConfig:
        return _read(fields, name, **known, **({"labels": labels_of(fields)} if labels else {}))

    pooling = with_pooling if make is TextModel else None
    return ModelFamily(name, "esm", read, make, partial(_recipes, keys), ANY_LAYER, (*_UNUSED, *unused), pooling)


ESM: Final = (
    _family("Model", TextModel, _KEYS, ("lm_head.*", "*pooler.dense.*"), pooler=True),
    _family("ForMaskedLM", TextForMaskedLM, _KEYS, ("*pooler.dense.*",), head=MASKED_LM_HEAD),
    _family(
        "ForSequenceClassification",
        TextForSequenceClassification,
        _CLASSIFIER_KEYS,
        ("lm_head.*", "*pooler.dense.*"),
        pooler=True,
    ),
    replace(
        token_families("Esm", "esm", _read, _KEYS, ANY_LAYER, (*_UNUSED, "lm_head.*"))[0],
        stored=partial(_recipes, _KEYS),
    ),
)
