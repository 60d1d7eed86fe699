"""Metadata of a GGUF file about its model, as checked fields."""

from typing import Any, Final

import numpy as np

from lang_core import ConfigError
from transformer_core._config_fields import ConfigFields
from transformer_core.checkpoints.gguf import GgufCheckpoint

ARCHITECTURE: Final = "general.architecture"
TOKENIZER: Final = "tokenizer.ggml."
SAMPLING: Final = "general.sampling."
"""Prefix of the fields of recommended sampling."""


# Fields that a file may have for each layer, as llama.cpp reads them.
_BY_LAYER: Final = ("attention.head_count", "attention.head_count_kv", "feed_forward_length")


def architecture_of(file: GgufCheckpoint) -> str:
    """Returns llama.cpp's name of the model's architecture.

    Raises:
        ConfigError: the file lacks a model.
    """
    kind = file.metadata.get("general.type", "model")
    if kind != "model":
        raise ConfigError(f"{file.path}: general.type is {kind!r}, expected 'model': give the file of the model itself")
    name = file.metadata.get(ARCHITECTURE)
    if not isinstance(name, str):
        raise ConfigError(f"{file.path}: {ARCHITECTURE}: expected a name; found {name!r:.80}: convert the model again")
    return name


def model_fields(file: GgufCheckpoint, architecture: str) -> ConfigFields:
    """Returns the fields ``<architecture>.*``, named without that prefix.

    A number that is stored in f32 becomes the shortest decimal with that value: 1e-05, not 9.999999747378752e-06. A
    list of the same size for every layer becomes that size; only some architectures read a list of different ones.
    """
    prefix = f"{architecture}."
    values = {key[len(prefix) :]: _plain(value) for key, value in file.metadata.items() if key.startswith(prefix)}
    for name in _BY_LAYER:
        sizes = values.get(name)
        if isinstance(sizes, list) and len(sizes) == values.get("block_count") and _are_one(sizes):
            values[name] = sizes[0]
    return ConfigFields(values, f"{file.path}: metadata {prefix}*")


def tokenizer_fields(file: GgufCheckpoint) -> ConfigFields:
    """Returns the fields ``tokenizer.ggml.*``, named without that prefix."""
    values = {key[len(TOKENIZER) :]: value for key, value in file.metadata.items() if key.startswith(TOKENIZER)}
    return ConfigFields(values, f"{file.path}: metadata {TOKENIZER}*")


def sampling_fields(file: GgufCheckpoint) -> ConfigFields:
    """Returns the fields ``general.sampling.*``, named without that prefix; f32 as for ``model_fields``."""
    values = {key[len(SAMPLING) :]: _plain(value) for key, value in file.metadata.items() if key.startswith(SAMPLING)}
    return ConfigFields(values, f"{file.path}: metadata {SAMPLING}*")


def vector(file: GgufCheckpoint, key: str) -> list[float]:
    """Returns a stored vector of f32, as the shortest decimals."""
    return [_decimal(value) for value in file.read(key).reshape(-1).tolist()]


def _are_one(sizes: list[Any]) -> bool:
    return bool(sizes) and all(type(size) is int and size == sizes[0] for size in sizes)


def _plain(value: Any) -> Any:
    return _decimal(value) if isinstance(value, float) else value


def _decimal(value: float) -> float:
    short = float(str(np.float32(value)))
    return short if np.float32(value) == value else value  # a NaN, or an f64, stays what it is
