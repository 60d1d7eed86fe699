"""Checkpoints as the weights of models."""

import os
from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Any, Final, Protocol, runtime_checkable

from lang_core import ENCODINGS, CheckpointError, Encoding, Module, PackedRows, TensorSpec, WeightSource
from transformer_core.checkpoints import (
    IGNORABLE,
    AdaptedWeights,
    Adapter,
    ComposedWeights,
    PackedWeights,
    RecipeOf,
    SafetensorsCheckpoint,
    adapt,
)
from transformer_core.checkpoints.quantized import QuantizedWeights, quantization_fields
from transformer_core.family._model import Model
from transformer_core.family._registry import config_values, family_named

# Modules that checkpoints may have in layers that read another layer's keys and values, here and in GGUF files.
_KEYS_AND_VALUES: Final = (
    *(f"self_attn.{name}" for name in ("k_proj", "v_proj", "k_norm")),
    "attn_k",
    "attn_v",
    "attn_k_norm",
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


def weights_of(model: Model[Any], source: WeightSource, adapters: Sequence[Adapter] = ()) -> WeightSource:
    """Returns the checkpoint's tensors under the names of the model's parameters, packed where the model's are.

    Args:
        model: modules.
        source: checkpoint.
        adapters: LoRA adapters that are merged as rows are read, in this order.

    Raises:
        CheckpointError: an adapter is not one of this model.
    """
    weights = _named(model, source, adapters)
    parameters = model.named_parameters()
    encodings = {path: parameter.encoding for path, parameter in parameters if parameter.encoding is not None}
    return PackedWeights(weights, encodings) if encodings else weights


def stored_encodings(model: Model[Any], source: WeightSource, adapters: Sequence[Adapter] = ()) -> dict[str, Encoding]:
    """Returns the encodings of the checkpoint's matrices that the model can keep, by path: for ``keep_packed``.

    Raises:
        CheckpointError: an adapter changes what the model keeps packed.
    """
    weights = _named(model, source, adapters)
    if not isinstance(weights, PackedRows):
        return {}
    named = {path: weights.packed_as(path) for path, _ in model.named_parameters() if weights.has(path)}
    return {path: ENCODINGS[name] for path, name in named.items() if name is not None and name in ENCODINGS}


def stored_specs(model: Model[Any], source: WeightSource) -> dict[str, TensorSpec]:
    """Returns the checkpoint's keys that the model needs, with the specs that it needs: for ``audit``."""
    composed = _composed(model, source)
    return _wanted(model) if composed is None else composed.stored()


def tied_keys(model: Model[Any], source: WeightSource) -> dict[str, str]:
    """Returns keys that checkpoints may store twice, each with the key that is read: for ``audit``."""
    composed = _composed(model, source)
    return {alias: path if composed is None else composed.stored_key(path) for alias, path in model.tied().items()}


def unused_keys(model: Model[Any], source: WeightSource) -> list[str]:
    """Returns glob patterns of stored keys that the model does not use, such as further layers: for ``audit``."""
    family = source if isinstance(source, OwnLayout) else family_named(model.config.architecture)
    beyond = range(model.config.layers, model.stored_layers)
    own = source.ignorable if isinstance(source, QuantizedWeights) else ()
    owners = getattr(model.config, "cache_owners", ())
    readers = [family.layer_key.format(index) for index, owner in enumerate(owners) if owner is not None]
    unread = [f"{layer}.{name}.*" for layer in readers for name in _KEYS_AND_VALUES]
    return [*IGNORABLE, *own, *family.ignorable, *unread, *(f"{family.layer_key.format(index)}.*" for index in beyond)]


def _named(model: Model[Any], source: WeightSource, adapters: Sequence[Adapter]) -> WeightSource:
    """Returns the checkpoint's tensors under the names of the model's parameters, adapters merged.

    Adapters have Hugging Face's names and forms. Of its checkpoints they change the stored tensors, before these are
    renamed, stacked and cut; of a source with a layout of its own the parameters that are made from them.
    """
    if not adapters:
        return _composed(model, source) or source
    absent = range(model.config.layers, model.stored_layers)
    if isinstance(source, OwnLayout):
        return adapt(_composed(model, source) or source, adapters, absent)
    adapted = adapt(source, adapters, absent)
    _check_read(model, source, adapted, absent)
    return _composed(model, adapted) or adapted


def _check_read(model: Model[Any], source: WeightSource, adapted: AdaptedWeights, absent: range) -> None:
    """Checks that the model reads every tensor that adapters change."""
    read, unused = stored_specs(model, source), unused_keys(model, source) if absent else []
    for key in adapted.changed:
        if key in read or any(fnmatchcase(key, pattern) for pattern in unused):
            continue
        other = tied_keys(model, source).get(key)
        reason = f"reads {other!r} in its place (tied weights)" if other else "does not read it"
        raise CheckpointError(
            f"an adapter changes {key!r} in {source.origin(key)}, and the model {reason}: merge it with PEFT"
        )


def _composed(model: Model[Any], source: WeightSource) -> ComposedWeights | None:
    if isinstance(source, OwnLayout):
        return ComposedWeights(source, _wanted(model), source.recipe_of(model.config))
    stored = family_named(model.config.architecture).stored
    return None if stored is None else ComposedWeights(source, _wanted(model), stored(model.config))


def _wanted(model: Module) -> dict[str, TensorSpec]:
    return {path: parameter.spec for path, parameter in model.named_parameters()}
