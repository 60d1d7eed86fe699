"""Families of decoders that encode texts; their layers are those of the families of decoders."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from lang_core import ConfigError, WeightSource
from transformer_core._config_fields import ConfigFields
from transformer_core.checkpoints import Recipe, RecipeOf, RenamedModules
from transformer_core.family._config import DecoderConfig, Family
from transformer_core.family._model import ModelFamily
from transformer_core.family._registry import family_named
from transformer_core.family._sentence import Pooling, ScoreTokens
from transformer_core.models.encoders._decoder_encoder import DecoderEncoder, DecoderEncoderConfig
from transformer_core.models.encoders._sentence_head import DENSE_NAMES, check_vectors
from transformer_core.models.encoders._stack import labels_of

_BIDIRECTIONAL: Final = "use_bidirectional_attention"
_KEYS: Final = RenamedModules(DENSE_NAMES, above=("model.",))
_LAYER: Final = "*layers.{}"
_UNUSED: Final = ("*lm_head.*", "*inv_freq")

# Names of the families that classify with the layers of a language model's, if they are others.
_CLASSIFIERS: Final = {"Gemma3ForCausalLM": "Gemma3Text"}

# Families without a head, by those of language models of the same layers.
_BACKBONES: Final = {
    "Gemma3ForCausalLM": "Gemma3TextModel",
    "LlamaForCausalLM": "LlamaModel",
    "MistralForCausalLM": "MistralModel",
    "Qwen2ForCausalLM": "Qwen2Model",
    "Qwen3ForCausalLM": "Qwen3Model",
}


# Model types of language models that have classifiers of the same layers.
_MODEL_TYPES: Final = {
    "LlamaForCausalLM": "llama",
    "MistralForCausalLM": "mistral",
    "MixtralForCausalLM": "mixtral",
    "Qwen2ForCausalLM": "qwen2",
    "Qwen3ForCausalLM": "qwen3",
    "GemmaForCausalLM": "gemma",
    "Gemma2ForCausalLM": "gemma2",
    "Gemma3ForCausalLM": "gemma3_text",
    "PhiForCausalLM": "phi",
    "Phi3ForCausalLM": "phi3",
    "StableLmForCausalLM": "stablelm",
    "Starcoder2ForCausalLM": "starcoder2",
}


def _read(fields: ConfigFields, architecture: str, lm: str, **known: Any) -> DecoderEncoderConfig:
    family = family_named(lm)
    return DecoderEncoderConfig(architecture=architecture, decoder=family.read(fields), **known)


def _read_gemma3(fields: ConfigFields) -> DecoderEncoderConfig:
    bidirectional = fields.boolean(_BIDIRECTIONAL, False)
    config = _read(
        ConfigFields({**fields.values, _BIDIRECTIONAL: None}, fields.where), "Gemma3TextModel", "Gemma3ForCausalLM"
    )
    return replace(config, bidirectional=True, decoder=_both_ways(config.decoder)) if bidirectional else config


def _read_eurobert(fields: ConfigFields, architecture: str, **known: Any) -> DecoderEncoderConfig:
    """Reads a EuroBERT: layers of a Llama with bidirectional attention."""
    return _read(fields, architecture, "LlamaForCausalLM", bidirectional=True, **known)


def _both_ways(decoder: DecoderConfig) -> DecoderConfig:
    """Returns the configuration with half of each window before a token and half after it, as transformers halves."""
    return replace(decoder, windows=tuple(None if window is None else window // 2 + 1 for window in decoder.windows))


def with_sentence_pooling(config: DecoderEncoderConfig, pooling: Pooling) -> DecoderEncoderConfig:
    """Returns the configuration of a model of sentence-transformers.

    Raises:
        ConfigError: the pooling is of vectors of another size.
    """
    check_vectors(pooling, config.decoder.hidden)
    return replace(config, pooling=pooling)


def with_score_tokens(config: DecoderEncoderConfig, tokens: ScoreTokens) -> DecoderEncoderConfig:
    """Returns the configuration of a reranker with a score from logits of tokens.

    Raises:
        ConfigError: a token is not in the vocabulary, or the decoder changes its logits.
    """
    decoder = config.decoder
    for token in (tokens.yes, tokens.no):
        if token is not None and token >= decoder.vocabulary:
            raise ConfigError(
                f"1_LogitScore/config.json names token {token}, and config.json a vocabulary of {decoder.vocabulary}: "
                "fetch both again, from one model"
            )
    if decoder.logits_scale != 1.0 or decoder.logits_softcap is not None or decoder.head_bias:
        raise ConfigError(f"{decoder.architecture} scales, caps or shifts its logits, which no reranker supports")
    return replace(config, score=tokens)


def backbone_of(architecture: str) -> ModelFamily[Any] | None:
    """Returns the family that encodes texts with the layers of a language model's; None if there is none."""
    name = _BACKBONES.get(architecture)
    family = None if name is None else family_named(name)
    return family if isinstance(family, ModelFamily) else None


def _backbone(lm: str, model_type: str) -> ModelFamily[DecoderEncoderConfig]:
    name = _BACKBONES[lm]
    read = _read_gemma3 if lm == "Gemma3ForCausalLM" else lambda fields: _read(fields, name, lm)
    return ModelFamily(
        name,
        model_type,
        read,
        DecoderEncoder,
        lambda config: _KEYS,
        _LAYER,
        _UNUSED,
        with_sentence_pooling,
    )


EUROBERT: Final = ModelFamily(
    "EuroBertModel",
    "eurobert",
    lambda fields: _read_eurobert(fields, "EuroBertModel"),
    DecoderEncoder,
    lambda config: _KEYS,
    _LAYER,
    _UNUSED,
    with_sentence_pooling,
)


def _classifiers(lm: str) -> tuple[ModelFamily[DecoderEncoderConfig], ModelFamily[DecoderEncoderConfig]]:
    """Returns the families that classify texts, and tokens, with the layers of a language model."""
    name = _CLASSIFIERS.get(lm, lm.removesuffix("ForCausalLM"))

    def family(kind: str, labels: str) -> ModelFamily[DecoderEncoderConfig]:
        architecture = f"{name}For{kind}Classification"

        def read(fields: ConfigFields) -> DecoderEncoderConfig:
            padding = fields.integer("pad_token_id", minimum=0) if fields.has("pad_token_id") else None
            return _read(fields, architecture, lm, padding=padding, **{labels: labels_of(fields)})

        return ModelFamily(architecture, _MODEL_TYPES[lm], read, DecoderEncoder, _stored(lm), _LAYER, _UNUSED)

    return family("Sequence", "labels"), family("Token", "token_labels")


def _stored(lm: str) -> Callable[[DecoderEncoderConfig], RecipeOf]:
    """Returns the recipes of parameters as checkpoints of a language model's family have them."""

    def recipes(config: DecoderEncoderConfig) -> RecipeOf:
        family = family_named(lm)
        own = family.stored(config.decoder) if isinstance(family, Family) and family.stored is not None else None

        def recipe(name: str, shape: tuple[int, ...], source: WeightSource) -> Recipe | None:
            above = next((above for above in ("model.", "") if source.has(f"{above}embed_tokens.weight")), "")
            stored = None if own is None else own(f"{above}{name}", shape, source)
            return _KEYS(name, shape, source) if stored is None else stored

        return recipe

    return recipes


# After those of language models in files without architectures: they have the same model types.
DECODER_ENCODERS: Final = (
    _backbone("Gemma3ForCausalLM", "gemma3_text"),
    _backbone("LlamaForCausalLM", "llama"),
    _backbone("MistralForCausalLM", "mistral"),
    _backbone("Qwen2ForCausalLM", "qwen2"),
    _backbone("Qwen3ForCausalLM", "qwen3"),
    *(family for lm in _MODEL_TYPES for family in _classifiers(lm)),
    EUROBERT,
)
"""Decoders that are used as encoders; behind those of language models, for model types are the same."""
