"""Checkpoints as the weights of models."""

import os
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from types import MappingProxyType
from typing import Any, Final, Protocol, runtime_checkable

import numpy as np

from lang_core import ENCODINGS, CheckpointError, Encoding, Module, PackedRows, TensorSpec, WeightSource
from transformer_core.checkpoints import (
    IGNORABLE,
    AdaptedWeights,
    Adapter,
    AliasedWeights,
    ComposedWeights,
    PackedWeights,
    PrefixedWeights,
    Recipe,
    RecipeOf,
    SafetensorsCheckpoint,
    Stored,
    adapt,
    adapts,
)
from transformer_core.checkpoints.quantized import QuantizedWeights, quantization_fields
from transformer_core.family._model import Model
from transformer_core.family._registry import config_values, family_named
from transformer_core.models._ties import StoredPair, check_equal, differing, missing_keys

# Modules that checkpoints may have in layers that read another layer's keys and values, here and in GGUF files.
_KEYS_AND_VALUES: Final = (
    *(f"self_attn.{name}" for name in ("k_proj", "v_proj", "k_norm")),
    "attn_k",
    "attn_v",
    "attn_k_norm",
)
_LAYERS: Final = "layers."  # module of a decoder that has its layers
_NOTHING: Final[Mapping[str, str]] = MappingProxyType({})

# Heads of the models that embedders were made from: sentence-transformers loads the layers alone.
_HEADS: Final = (
    *("classifier.*", "cls.*", "head.*", "lm_head.*", "pre_classifier.*", "qa_outputs.*", "score.*", "vocab_*"),
    *("*pooler.dense.*", "decoder.*"),
)


@runtime_checkable
class OwnLayout(Protocol):
    """Source that stores a family's parameters otherwise than Hugging Face's checkpoints do.

    Attributes:
        layer_key: prefix of the keys of a layer's stored tensors, as a glob pattern with ``{}`` for its number.
        ignorable: glob patterns of stored keys that models do not use.
    """

    @property
    def layer_key(self) -> str: ...

    @property
    def ignorable(self) -> tuple[str, ...]: ...

    def recipe_of(self, config: Any) -> RecipeOf:
        """Returns the recipes of the parameters of a configuration."""
        ...


def check_quantization(directory: str | os.PathLike[str]) -> None:
    """Checks that weights of a directory that config.json says are quantized can be read.

    Raises:
        ConfigError: the method of quantization is not supported.
    """
    quantization_fields(config_values(directory))


def unquantized(directory: str | os.PathLike[str], checkpoint: SafetensorsCheckpoint) -> WeightSource:
    """Returns a checkpoint's weights; if config.json says that they are quantised, unpacked as they are read.

    Args:
        directory: holds config.json.
        checkpoint: checkpoint in the same directory.

    Raises:
        ConfigError: the method of quantization or one of its settings is not supported.
        CheckpointError: a quantised weight lacks a part, or its parts do not fit each other.
    """
    fields = quantization_fields(config_values(directory))
    return checkpoint if fields is None else QuantizedWeights(checkpoint, fields.values, fields.where)


def weights_of(
    model: Model[Any],
    source: WeightSource,
    adapters: Sequence[Adapter] = (),
    packed: Mapping[str, np.ndarray] = MappingProxyType({}),
) -> WeightSource:
    """Returns the checkpoint's tensors under the names of the model's parameters, packed if the model's are.

    Args:
        model: modules.
        source: checkpoint.
        adapters: LoRA adapters that are merged as rows are read, in this order.
        packed: matrices [.., bytes of a row] that are packed already, i8 in the encodings of the model, by path.

    Raises:
        CheckpointError: an adapter is not one of this model, or tied parameters are stored with different values.
    """
    source = _with_prefix(model, source)
    check_equal(_pairs(model, model.tied(), source), source)
    weights = _named(model, source, adapters)
    parameters = model.named_parameters()
    encodings = {path: parameter.encoding for path, parameter in parameters if parameter.encoding is not None}
    return PackedWeights(weights, encodings, packed) if encodings else weights


def stored_encodings(model: Model[Any], source: WeightSource, adapters: Sequence[Adapter] = ()) -> dict[str, Encoding]:
    """Returns the encodings of the checkpoint's matrices that the model can keep, by path: for ``keep_packed``.

    Raises:
        CheckpointError: an adapter changes a packed weight.
    """
    weights = _named(model, _with_prefix(model, source), adapters)
    if not isinstance(weights, PackedRows):
        return {}
    named = {path: weights.packed_as(path) for path, _ in model.named_parameters() if weights.has(path)}
    return {path: ENCODINGS[name] for path, name in named.items() if name is not None and name in ENCODINGS}


def stored_specs(model: Model[Any], source: WeightSource) -> dict[str, TensorSpec]:
    """Returns the checkpoint's keys that the model needs, with the specs that it needs: for ``audit``."""
    source = _with_prefix(model, source)
    missing = _missing(model, source)
    composed = _composed(model, source, missing)
    wanted = _wanted(model) if composed is None else composed.stored()
    return {_actual(source, missing.get(key, key)): spec for key, spec in wanted.items()}


def tied_keys(model: Model[Any], source: WeightSource) -> dict[str, str]:
    """Returns keys that checkpoints may store twice, each with the key that is read: for ``audit``."""
    source = _with_prefix(model, source)
    missing = _missing(model, source)
    pairs = _pairs(model, model.tied(), source).values()
    return {_actual(source, second): _actual(source, missing.get(first, first)) for first, second in pairs}


def stored_apart(model: Model[Any], source: WeightSource) -> list[str]:
    """Returns the second names of parameters that the model has tied, and that are stored twice, with other values."""
    source = _with_prefix(model, source)
    return [*differing(_pairs(model, model.tied(), source), source)]


def adapts_tied(model: Model[Any], source: WeightSource | None, adapters: Sequence[Adapter]) -> bool:
    """Returns True if an adapter changes a parameter that the model has tied.

    Args:
        model: modules.
        source: checkpoint of Hugging Face's form; None if adapters have the names of the model's parameters.
        adapters: adapters.
    """
    ties, pairs = model.tied(), [*model.tied().items()]
    if source is not None:
        pairs = [*_pairs(model, ties, _with_prefix(model, source)).values()]
    keys = {key for pair in pairs for key in pair}
    return any(adapts(adapter, keys) for adapter in adapters)


def unused_keys(model: Model[Any], source: WeightSource) -> list[str]:
    """Returns glob patterns of stored keys that the model does not use, such as further layers: for ``audit``."""
    family = source if isinstance(source, OwnLayout) else family_named(model.config.architecture)
    beyond = range(model.config.layers, model.stored_layers)
    own = source.ignorable if isinstance(source, QuantizedWeights) else ()
    owners = getattr(model.config, "cache_owners", ())
    readers = [family.layer_key.format(index) for index, owner in enumerate(owners) if owner is not None]
    unread = [f"{layer}.{name}.*" for layer in readers for name in _KEYS_AND_VALUES]
    heads = _HEADS if getattr(model.config, "pooling", None) is not None else ()
    untied = model.untied()
    seen = _with_prefix(model, source)
    listed = [
        *(_stored_key(model, source, path) for path, second in untied.items() if path != second),
        *IGNORABLE,
        *own,
        *family.ignorable,
        *heads,
        *unread,
        *(f"{family.layer_key.format(index)}.*" for index in beyond),
    ]
    return [*dict.fromkeys([*listed, *(_actual(seen, pattern) for pattern in listed)])]


def _with_prefix(model: Model[Any], source: WeightSource) -> WeightSource:
    """Returns a checkpoint under the keys of the model with its head, if it stores the model below the head alone."""
    if isinstance(source, OwnLayout | PrefixedWeights):
        return source
    keys = [*source.keys()]
    if not any(key.startswith(_LAYERS) for key in keys):
        return source
    path = next((path for path, _ in model.named_parameters() if f".{_LAYERS}" in path), "")
    prefix, layers, _ = (_stored_key(model, source, path) if path else "").partition(_LAYERS)
    if not layers or not prefix or any(key.startswith(prefix) for key in keys):
        return source
    return PrefixedWeights(source, prefix)


def _actual(source: WeightSource, key: str) -> str:
    """Returns the key that the checkpoint has."""
    return source.stored_key(key) if isinstance(source, PrefixedWeights) else key


def _named(model: Model[Any], source: WeightSource, adapters: Sequence[Adapter]) -> WeightSource:
    """Returns the checkpoint's tensors under the names of the model's parameters, adapters merged.

    Adapters have Hugging Face's names and forms. Of its checkpoints they change the stored tensors, before these are
    renamed, stacked and cut; of a source with a layout of its own the parameters that are made from them.
    """
    missing = _missing(model, source)
    if not adapters:
        return _composed(model, source, missing) or source
    own = isinstance(source, OwnLayout)
    if adapts_tied(model, None if own else source, adapters):
        raise CheckpointError(
            f"adapter {', '.join(adapter.path for adapter in adapters)}: changes a tensor that the model has tied to "
            f"another one ({', '.join(model.tied())}): make a decoder by load_model(directory, adapters=..), which "
            "separates them; for another model merge the adapter with PEFT"
        )
    absent = range(model.config.layers, model.stored_layers)
    if own:
        return adapt(_composed(model, source, missing) or source, adapters, absent, model.copies, frozenset())
    shared = {second: first for first, second in _pairs(model, model.copies, source).values()}
    whole = AliasedWeights(source, missing) if missing else source
    composed = _composed(model, source, missing)
    transposed = frozenset[str]() if composed is None else composed.transposed()
    adapted = adapt(whole, adapters, absent, shared, transposed)
    _check_read(model, whole, adapted, absent)
    return _composed(model, adapted) or adapted


def recipes_of(model: Model[Any], source: WeightSource, names: Iterable[str]) -> dict[str, Recipe]:
    """Returns the recipes by which parameters are made of the tensors of a checkpoint of Hugging Face's form."""
    source, wanted = _with_prefix(model, source), _wanted(model)
    composed = _composed(model, source, _missing(model, source))
    if composed is None:
        return {name: Stored(name, wanted[name].shape) for name in names}
    return {name: composed.recipe(name) for name in names}


def _check_read(model: Model[Any], source: WeightSource, adapted: AdaptedWeights, absent: range) -> None:
    """Checks that the model reads every tensor that adapters change."""
    read, unused = stored_specs(model, source), unused_keys(model, source) if absent else []
    for key in adapted.changed:
        if key in read or any(fnmatchcase(key, pattern) for pattern in unused):
            continue
        raise CheckpointError(
            f"an adapter changes {key!r} in {source.origin(key)}, and the model does not read it: merge it with PEFT"
        )


def _composed(model: Model[Any], source: WeightSource, missing: Mapping[str, str] = _NOTHING) -> ComposedWeights | None:
    """Returns the weights under the names of the model's parameters; None if the source has these names.

    Args:
        model: modules.
        source: checkpoint.
        missing: keys that the checkpoint lacks, with the keys of the same values.
    """
    whole = AliasedWeights(source, missing) if missing else source
    recipe_of = _recipe_of(model, source)
    if recipe_of is not None:
        return ComposedWeights(whole, _wanted(model), recipe_of)
    return ComposedWeights(whole, _wanted(model), _as_stored) if missing else None


def _as_stored(name: str, shape: tuple[int, ...], source: WeightSource) -> Recipe | None:
    """Returns None: every parameter is stored as it is."""
    del name, shape, source
    return None


def _recipe_of(model: Model[Any], source: WeightSource) -> RecipeOf | None:
    if isinstance(source, OwnLayout):
        return source.recipe_of(model.config)
    recipe_of, untied = _recipe_of_family(model), model.untied()
    if not untied:
        return recipe_of

    def of_second(name: str, shape: tuple[int, ...], source: WeightSource) -> Recipe | None:
        key = untied.get(name, name)
        recipe = None if recipe_of is None else recipe_of(key, shape, source)
        return Stored(key, shape) if recipe is None and key != name else recipe

    return of_second


def _recipe_of_family(model: Model[Any]) -> RecipeOf | None:
    stored = family_named(model.config.architecture).stored
    return None if stored is None else stored(model.config)


def _stored_key(model: Model[Any], source: WeightSource, path: str) -> str:
    """Returns the key that a parameter has if it is tied."""
    recipe_of, shape = _recipe_of_family(model), _wanted(model)[path].shape
    recipe = None if recipe_of is None else recipe_of(path, shape, source)
    return path if recipe is None else next(iter(recipe.stored()))


def _missing(model: Model[Any], source: WeightSource) -> dict[str, str]:
    """Returns the stored keys that the model needs and a checkpoint lacks, with the keys of the same values."""
    tied, copies = _pairs(model, model.tied(), source), _pairs(model, model.copies, source)
    return missing_keys(tied, source, both=False) | missing_keys(copies, source, both=True)


def _pairs(model: Model[Any], ties: Mapping[str, str], source: WeightSource) -> dict[str, StoredPair]:
    """Returns the stored keys of parameters that have two names, by the second one."""
    if not ties:
        return {}
    recipe_of, wanted = _recipe_of(model, source), _wanted(model)

    def key(name: str, shape: tuple[int, ...]) -> str:
        recipe = None if recipe_of is None else recipe_of(name, shape, source)
        return name if recipe is None else next(iter(recipe.stored()))

    shapes = {alias: wanted[path].shape for alias, path in ties.items()}
    return {alias: StoredPair(key(path, shapes[alias]), key(alias, shapes[alias])) for alias, path in ties.items()}


def _wanted(model: Module) -> dict[str, TensorSpec]:
    return {path: parameter.spec for path, parameter in model.named_parameters()}
