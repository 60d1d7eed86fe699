"""Families of decoders that encode texts; their layers are those of the families of decoders."""

from dataclasses import replace
from typing import Any, Final

from lang_core import ConfigError
from transformer_core._config_fields import ConfigFields
from transformer_core.checkpoints import RenamedModules
from transformer_core.family._config import DecoderConfig
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

# Families without a head, by those of language models of the same layers.
_BACKBONES: Final = {
    "Gemma3ForCausalLM": "Gemma3TextModel",
    "LlamaForCausalLM": "LlamaModel",
    "MistralForCausalLM": "MistralModel",
    "Qwen2ForCausalLM": "Qwen2Model",
    "Qwen3ForCausalLM": "Qwen3Model",
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


def _classifier(lm: str, model_type: str) -> ModelFamily[DecoderEncoderConfig]:
    name = lm.replace("ForCausalLM", "ForSequenceClassification")
    return ModelFamily(
        name,
        model_type,
        lambda fields: _read(fields, name, lm, labels=labels_of(fields)),
        DecoderEncoder,
        lambda config: _KEYS,
        _LAYER,
        _UNUSED,
    )


# After those of language models in files without architectures: they have the same model types.
DECODER_ENCODERS: Final = (
    _backbone("Gemma3ForCausalLM", "gemma3_text"),
    _backbone("LlamaForCausalLM", "llama"),
    _backbone("MistralForCausalLM", "mistral"),
    _backbone("Qwen2ForCausalLM", "qwen2"),
    _backbone("Qwen3ForCausalLM", "qwen3"),
    _classifier("Qwen2ForCausalLM", "qwen2"),
    _classifier("Qwen3ForCausalLM", "qwen3"),
    EUROBERT,
)
"""Decoders that are used as encoders; behind those of language models, for model types are the same."""
