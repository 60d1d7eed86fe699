"""A family of decoders that see pictures: its decoder is any family, its tower and projector are its own."""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from lang_core import DType, Module, WeightSource
from transformer_core._config_fields import ConfigFields
from transformer_core.checkpoints import Recipe, RecipeOf, RenamedModules, WrappedKeys
from transformer_core.family._config import DecoderConfig, Family, decoder_family
from transformer_core.family._decoder import DecoderLM
from transformer_core.models.vision_language._config import VisionLanguageConfig
from transformer_core.models.vision_language._model import VisionLanguageLM

_NOTHING: Final[Mapping[str, Any]] = MappingProxyType({})
_PARTS: Final = ("vision_model.", "connector.")

# transformers' defaults of fields that text_config leaves out, by its model type.
TEXT_DEFAULTS: Final[Mapping[str, Mapping[str, Any]]] = MappingProxyType(
    {
        "llama": {
            "hidden_size": 4096,
            "intermediate_size": 11008,
            "max_position_embeddings": 2048,
            "num_attention_heads": 32,
            "num_hidden_layers": 32,
            "rms_norm_eps": 1e-6,
            "vocab_size": 32000,
        },
        "mistral": {
            "hidden_size": 4096,
            "intermediate_size": 14336,
            "max_position_embeddings": 131072,
            "num_attention_heads": 32,
            "num_hidden_layers": 32,
            "num_key_value_heads": 8,
            "rms_norm_eps": 1e-6,
            "sliding_window": 4096,
            "vocab_size": 32000,
        },
        "qwen2": {
            "hidden_size": 4096,
            "intermediate_size": 22016,
            "max_position_embeddings": 32768,
            "num_attention_heads": 32,
            "num_hidden_layers": 32,
            "num_key_value_heads": 32,
            "rms_norm_eps": 1e-6,
            "vocab_size": 151936,
        },
        "qwen3": {
            "head_dim": 128,
            "hidden_size": 4096,
            "intermediate_size": 22016,
            "max_position_embeddings": 32768,
            "num_attention_heads": 32,
            "num_hidden_layers": 32,
            "num_key_value_heads": 32,
            "rms_norm_eps": 1e-6,
            "vocab_size": 151936,
        },
    }
)


def read_decoder(
    fields: ConfigFields,
    families: Sequence[Family],
    *,
    tied: bool | None = None,
    defaults: Mapping[str, Mapping[str, Any]] = _NOTHING,
) -> DecoderConfig:
    """Reads the decoder of a model that sees pictures from ``text_config``.

    Args:
        fields: fields of the whole model's config.json.
        families: families that the decoder may be of; the first one if ``model_type`` is absent.
        tied: whether the head is the embedding; None if ``text_config`` says so.
        defaults: for each model type, values of fields that are absent.
    """
    text = fields.object("text_config")
    kinds = {family.model_type: family for family in families}
    kind = text.choice("model_type", tuple(kinds), families[0].model_type)
    values = {**defaults.get(kind, _NOTHING), **text.values}
    if tied is not None:
        values["tie_word_embeddings"] = tied
    return kinds[kind].read(ConfigFields(values, text.where))


def vision_language_family(
    architecture: str,
    model_type: str,
    read: Callable[[ConfigFields], DecoderConfig],
    make: Callable[[Any, DType | str, int | None], VisionLanguageLM],
    seen: Callable[[Any], RecipeOf],
    *,
    decoder_in: str | None = None,
    alone: Family | None = None,
    text: RecipeOf | None = None,
    ignorable: tuple[str, ...] = (),
) -> Family:
    """Returns a family of decoders that see pictures.

    Args:
        architecture: architecture of the whole.
        model_type: model type of the whole.
        read: function that reads the configuration of a config.json.
        make: function that makes the model of a configuration, or its class.
        seen: recipes of the tower's and the projector's parameters, for a configuration.
        alone: family of the decoder of a config.json that does not describe the tower; None if each does.
        decoder_in: prefix of the decoder's stored keys; None for those of ``WrappedKeys``.
        text: recipes of the decoder's parameters, if they are stored in another way than in the decoder's family.
        ignorable: glob patterns of stored keys that the model does not use.
    """

    def family_in(config: DecoderConfig) -> Family:
        if isinstance(config, VisionLanguageConfig):
            return decoder_family(config.decoder)
        assert alone is not None
        return alone

    def layer(config: DecoderConfig, index: int, dtype: DType) -> Module:
        return family_in(config).layer(config, index, dtype)

    def stored(config: DecoderConfig) -> RecipeOf:
        inner = family_in(config).stored
        recipes = text or (None if inner is None else inner(config))
        wrapped = WrappedKeys(recipes) if decoder_in is None else WrappedKeys(recipes, (decoder_in,))
        return _in_parts(seen(config), wrapped) if isinstance(config, VisionLanguageConfig) else wrapped

    def make_model(config: DecoderConfig, dtype: DType | str, num_layers: int | None) -> DecoderLM:
        return (make if isinstance(config, VisionLanguageConfig) else DecoderLM)(config, dtype, num_layers)

    return Family(
        architecture,
        model_type,
        read,
        layer,
        stored,
        "*language_model.*layers.{}" if decoder_in is None else f"{decoder_in}layers.{{}}",
        ignorable,
        make=make_model,
    )


def below(module: str, recipes: RenamedModules) -> RecipeOf:
    """Returns recipes of the parameters below a module alone."""
    return lambda name, shape, source: recipes(name, shape, source) if name.startswith(module) else None


def _in_parts(seen: RecipeOf, text: RecipeOf) -> RecipeOf:
    def recipe_of(name: str, shape: tuple[int, ...], source: WeightSource) -> Recipe | None:
        return (seen if name.startswith(_PARTS) else text)(name, shape, source)

    return recipe_of
