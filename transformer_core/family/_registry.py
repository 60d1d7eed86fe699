"""Registry of families by the architecture in config.json."""

import os
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

from lang_core import ConfigError, checked_choices, load_plugins, some_of
from transformer_core._config_fields import ConfigFields
from transformer_core._json_files import config_fields
from transformer_core._names import CONFIG_FILE
from transformer_core.checkpoints import RecipeOf
from transformer_core.checkpoints.quantized import quantization_fields
from transformer_core.family._kinds import WHERE, kind_of, near_of_kind
from transformer_core.family._model import ModelFamily


class AnyFamily(Protocol):
    """Family of models: ``Family`` of decoders, ``ModelFamily`` of all others.

    Attributes:
        architecture: its name in ``architectures`` of config.json.
        model_type: its ``model_type``, for files without ``architectures``.
        read: function that reads the configuration of a config.json; raises ConfigError.
        stored: recipes of parameters that checkpoints do not store as the model has them.
        layer_key: prefix of the keys of a layer's stored tensors, as a glob pattern with ``{}`` for its number.
        ignorable: glob patterns of stored keys that the model does not use.
    """

    @property
    def architecture(self) -> str: ...

    @property
    def model_type(self) -> str: ...

    @property
    def read(self) -> Callable[[ConfigFields], Any]: ...

    @property
    def stored(self) -> Callable[[Any], RecipeOf] | None: ...

    @property
    def layer_key(self) -> str: ...

    @property
    def ignorable(self) -> tuple[str, ...]: ...


_FAMILIES: Final[dict[str, AnyFamily]] = {}
_REASONS: Final[dict[str, str]] = {}


def register(family: AnyFamily) -> None:
    """Registers a family; other packages may register further ones.

    If several architectures share a model type, files without ``architectures`` belong to the first.

    Raises:
        ConfigError: the architecture is taken.
    """
    known = _FAMILIES.get(family.architecture)
    if known is not None:
        raise ConfigError(
            f"family {family.architecture} ({family.model_type}): {known.architecture} ({known.model_type}) is "
            "registered already: a name stands for one family"
        )
    _FAMILIES[family.architecture] = family


def register_refusal(architecture: str, reason: str) -> None:
    """Registers why an architecture that looks like a supported one is not supported; messages say it."""
    _REASONS[architecture] = reason


def refusals() -> Mapping[str, str]:
    """Returns the reasons by the architectures that are refused by name."""
    load_plugins()
    return dict(_REASONS)


def architectures() -> tuple[str, ...]:
    """Returns the architectures of all registered families."""
    load_plugins()
    return tuple(_FAMILIES)


def family_named(architecture: str) -> AnyFamily:
    """Returns the family of an architecture.

    Raises:
        ConfigError: a family is not registered for it; lists the registered ones.
        PluginError: an installed plugin cannot be loaded.
    """
    load_plugins()
    family = _FAMILIES.get(architecture)
    if family is None:
        raise ConfigError(_unsupported(architecture))
    return family


@checked_choices
def family_in(config: ConfigFields, *, weights: bool = True) -> AnyFamily:
    """Returns the family that a config.json names.

    Args:
        config: fields of config.json.
        weights: whether the checkpoint's weights are wanted: quantised ones are refused if their method is unknown.

    Raises:
        ConfigError: the file does not name a supported family.
        PluginError: an installed plugin cannot be loaded.
    """
    load_plugins()
    family = _named(config)
    if weights:
        quantization_fields(config)
    return family


def embedding_family(config: ConfigFields, *, weights: bool = True) -> ModelFamily[Any]:
    """Returns the family that embeds sentences with the layers of the model that a config.json names.

    It is that of the model without a head, whatever head ``architectures`` names: sentence-transformers takes the class
    that transformers has for the ``model_type``.

    Args:
        config: fields of config.json.
        weights: as for ``family_in``.

    Raises:
        ConfigError: a family with these layers does not embed sentences.
        PluginError: an installed plugin cannot be loaded.
    """
    load_plugins()
    names = config.values.get("architectures")
    name = names[0] if isinstance(names, list) and len(names) == 1 and isinstance(names[0], str) else ""
    named = _FAMILIES.get(name)
    model_type = config.values.get("model_type") or getattr(named, "model_type", None)
    embedding = [one for one in _FAMILIES.values() if isinstance(one, ModelFamily) and one.embedding is not None]
    family = next((one for one in embedding if one is named), None)
    family = family or next((one for one in embedding if one.model_type == model_type), None)
    if family is None:
        known = some_of(str(model_type), dict.fromkeys(one.model_type for one in embedding))
        raise ConfigError(
            f"{config.where}: {name or model_type or 'a model without architectures'} embeds no sentences, and "
            f"modules.json beside it says that it does: expected a model_type of {known}; found {model_type!r}"
        )
    if weights:
        quantization_fields(config)
    return family


def config_values(directory: str | os.PathLike[str]) -> ConfigFields:
    """Reads ``config.json`` of a Hugging Face directory.

    Raises:
        ConfigError: the file is missing, unreadable or not a JSON object.
    """
    remedy = "give the directory of a Hugging Face model, with config.json beside its *.safetensors"
    path = os.path.join(os.fspath(directory), CONFIG_FILE)
    return config_fields(path, remedy)


def _named(config: ConfigFields) -> AnyFamily:
    model_type = config.values.get("model_type")
    if not config.has("architectures") and isinstance(model_type, str):
        first = next((family for family in _FAMILIES.values() if family.model_type == model_type), None)
        if first is None:
            types = {family.model_type: kind_of(family.architecture) for family in reversed(_FAMILIES.values())}
            near = near_of_kind(model_type, kind_of(model_type, config.values), types.items())
            raise ConfigError(
                f"{config.where}: field 'architectures' is missing, and field 'model_type': {model_type!r} is not "
                f"supported{near}; {WHERE}"
            )
        return first
    names = config.values.get("architectures")
    if not isinstance(names, list) or len(names) != 1 or not isinstance(names[0], str):
        config.refuse("architectures", "a list of one of the names in docs/models.md, such as ['LlamaForCausalLM']")
    if names[0] not in _FAMILIES:
        raise ConfigError(f"{config.where}: field 'architectures': {_unsupported(names[0], config)}")
    return _FAMILIES[names[0]]


def _inner_model(config: ConfigFields) -> str:
    """Returns a remedy for the text model of a whole that is not supported; empty if there is none."""
    text = config.values.get("text_config")
    kind = text.get("model_type") if isinstance(text, Mapping) else None
    if not isinstance(kind, str) or kind not in {family.model_type for family in _FAMILIES.values()}:
        return ""
    return (
        f"; its text_config is a {kind!r}, which is supported: load the checkpoint with transformers, save its "
        "language model by save_pretrained, and give that directory"
    )


def _unsupported(name: str, config: ConfigFields | None = None) -> str:
    if name in _REASONS:
        return f"{name} is not supported: {_REASONS[name]}; {WHERE}"
    kind = kind_of(name, None if config is None else config.values)
    near = near_of_kind(name, kind, [(known, kind_of(known)) for known in _FAMILIES])
    return f"{name!r} is not supported{near}{'' if config is None else _inner_model(config)}; {WHERE}"
