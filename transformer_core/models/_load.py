"""Loading of models of any family from their directories."""

import os
from collections.abc import Callable, Sequence
from typing import Any

from lang_core import Activations, ConfigError, DType, checked_choices, encoding_named
from transformer_core._config_fields import ConfigFields, asked_names
from transformer_core._misspelt import near_misses
from transformer_core._packing import pack_weights
from transformer_core.checkpoints import Adapter, SafetensorsCheckpoint
from transformer_core.family._config import Family
from transformer_core.family._decoder import DecoderLM
from transformer_core.family._drafting import DraftingLM
from transformer_core.family._model import Model, ModelFamily
from transformer_core.family._registry import config_values, embedding_family, family_in
from transformer_core.family._sentence import Pooling, ScoreTokens, read_pooling, read_score_tokens
from transformer_core.models._ties import has_weights, separated
from transformer_core.models._weights import adapts_tied, stored_apart, unquantized
from transformer_core.models.encoders import DecoderEncoder, DecoderEncoderConfig
from transformer_core.models.encoders._decoder_families import backbone_of, with_score_tokens
from transformer_core.models.encoders._vision import VisionConfig, as_processed
from transformer_core.models.encoders._whisper_config import WhisperConfig, as_aligned


@checked_choices
def load_model(
    directory: str | os.PathLike[str],
    dtype: DType | str = "f32",
    num_layers: int | None = None,
    *,
    weights: bool = True,
    quantize: str | None = None,
    activations: Activations = "exact",
    drafts: bool = False,
    adapters: Sequence[Adapter] = (),
) -> Model[Any]:
    """Makes the model that ``config.json`` of a Hugging Face directory describes.

    With a modules.json of sentence-transformers beside it, the model embeds sentences: the model without a head of the
    ``model_type``, whatever head ``architectures`` names, as sentence-transformers loads it. Weights are not read,
    except if config.json ties a decoder's head to its embedding and the directory stores both: these are compared, and
    if they have different values the head is a parameter of its own, as in transformers.

    Args:
        directory: holds config.json.
        dtype: as for ``Model``.
        num_layers: as for ``Model``.
        weights: whether the checkpoint's weights will be read; unknown methods of quantization are refused then, and
            tied parameters are compared.
        quantize: encoding of the matrices, such as ``"q8_0"``; they are not packed if None.
        activations: form in which products with packed weights take x; see ``pack_weights``.
        drafts: whether a decoder has its multi-token prediction head, and the entry point ``draft``.
        adapters: adapters that ``weights_of`` will merge. If they change a decoder's embedding or its head, and these
            are tied, the head is a parameter of its own, as PEFT has it.

    Raises:
        ConfigError: the file is missing or damaged, or the model is not supported; or a decoder that is to draft lacks
            a head.
    """
    model = _model(directory, dtype, num_layers, weights, drafts, adapters)
    if quantize is not None:
        pack_weights(model, encoding_named(quantize), model.dtype, activations)
    return model


def _model(
    directory: str | os.PathLike[str],
    dtype: DType | str,
    num_layers: int | None,
    weights: bool,
    drafts: bool,
    adapters: Sequence[Adapter],
) -> Model[Any]:
    fields = config_values(directory)
    tokens, pooling = read_score_tokens(directory), read_pooling(directory)
    if pooling is not None:
        embedder = embedding_family(fields, weights=weights)
        embedding = _with_pooling(embedder, embedder.read(fields), pooling)
        return _as_stored(embedder.make, embedding, directory, dtype, num_layers, weights, adapters)
    family = family_in(fields, weights=weights)
    config = family.read(fields)
    if isinstance(config, VisionConfig):
        config = as_processed(config, directory)
    if isinstance(config, WhisperConfig):
        config = as_aligned(config, directory)
    if isinstance(family, Family):
        if tokens is not None:
            ranking = _ranking(fields, family, tokens)
            return _as_stored(DecoderEncoder, ranking, directory, dtype, num_layers, weights, adapters)
        make = DraftingLM if drafts else family.make or DecoderLM
        return _as_stored(make, config, directory, dtype, num_layers, weights, adapters)
    if isinstance(family, ModelFamily):
        return _as_stored(family.make, config, directory, dtype, num_layers, weights, adapters)
    raise ConfigError(f"{fields.where}: {family.architecture} is registered as a {type(family).__name__}, not a family")


@checked_choices
def misspelt_fields(directory: str | os.PathLike[str], *, weights: bool = True) -> list[str]:
    """Returns a warning of each field of ``config.json`` that nothing reads and that is named nearly as one that is.

    The other field, which is absent, has its default then. Unread fields of transformers are not mistakes.

    Args:
        directory: holds config.json of a model that is supported.
        weights: as for ``load_model``.
    """
    with asked_names() as asked:
        fields = config_values(directory)
        embeds = read_pooling(directory) is not None
        family = embedding_family(fields, weights=weights) if embeds else family_in(fields, weights=weights)
        family.read(fields)
    return near_misses(fields.values, asked, fields.where)


def _as_stored(
    make: Callable[[Any, DType | str, int | None], Model[Any]],
    config: Any,
    directory: str | os.PathLike[str],
    dtype: DType | str,
    num_layers: int | None,
    weights: bool,
    adapters: Sequence[Adapter],
) -> Model[Any]:
    """Makes a model; tied parameters are apart if the checkpoint or an adapter separates them."""
    model, own = make(config, dtype, num_layers), separated(config)
    ties = model.tied()
    if not weights or not ties:
        return model
    if not has_weights(directory):
        return (
            model
            if own is None or not adapts_tied(model, None, adapters)
            else _apart(make(own, dtype, num_layers), ties)
        )
    with SafetensorsCheckpoint(directory) as checkpoint:
        source = unquantized(directory, checkpoint)
        names = stored_apart(model, source)
        apart = separated(config, names) if names else None
        if apart is not None:
            return make(apart, dtype, num_layers)
        changed = own is not None and adapts_tied(model, source, adapters)
    return _apart(make(own, dtype, num_layers), ties) if changed else model


def _apart(model: Model[Any], ties: dict[str, str]) -> Model[Any]:
    """Returns a model that reads its head from the embedding if the checkpoint has one tensor for both."""
    model.copies = ties
    return model


def _ranking(fields: ConfigFields, family: Family, tokens: ScoreTokens) -> DecoderEncoderConfig:
    """Returns the configuration of a decoder that modules.json makes a reranker."""
    backbone = backbone_of(family.architecture)
    if backbone is None:
        raise ConfigError(
            f"{fields.where}: {family.architecture} ranks no texts, and modules.json beside it says that it does: "
            "choose a reranker of another architecture"
        )
    return with_score_tokens(backbone.read(fields), tokens)


def _with_pooling(family: ModelFamily[Any], config: Any, pooling: Pooling) -> Any:
    assert family.embedding is not None  # embedding_family gives no other
    return family.embedding(config, pooling)
