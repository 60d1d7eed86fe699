"""Tied parameters: stored under their second name alone, stored twice, or changed by an adapter."""

import os
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any, Final, NamedTuple

import numpy as np

from lang_core import CheckpointError, WeightSource
from transformer_core.checkpoints import INDEX_FILE, SINGLE_FILE
from transformer_core.family._config import DecoderConfig
from transformer_core.models.encoders import DecoderEncoderConfig, EncoderConfig, T5GemmaConfig

_ELEMENTS_AT_ONCE: Final = 1 << 19


class StoredPair(NamedTuple):
    """Stored keys of a parameter that has two names.

    Attributes:
        first: key that the parameter is read by.
        second: key of its second name, such as that of a head that is the embedding.
    """

    first: str
    second: str


def missing_keys(pairs: Mapping[str, StoredPair], source: WeightSource, *, both: bool) -> dict[str, str]:
    """Returns the keys that a checkpoint lacks, with the stored key of the same values.

    Args:
        pairs: stored keys by second name.
        source: checkpoint.
        both: True if the model reads both keys; False if it reads the first one alone.
    """
    missing: dict[str, str] = {}
    for first, second in pairs.values():
        if not source.has(first) and source.has(second):
            missing.setdefault(first, second)
        elif both and source.has(first) and not source.has(second):
            missing[second] = first
    return missing


def differing(pairs: Mapping[str, StoredPair], source: WeightSource) -> dict[str, StoredPair]:
    """Returns the pairs of which both keys are stored, with different values, by second name.

    A first key that is not stored stands for the first second key that is.
    """
    there = {first: next((key for key in keys if source.has(key)), first) for first, keys in _keys(pairs).items()}
    stored = {name: StoredPair(there[first], second) for name, (first, second) in pairs.items()}
    return {name: pair for name, pair in stored.items() if not _equal(source, *pair)}


def _keys(pairs: Mapping[str, StoredPair]) -> dict[str, list[str]]:
    """Returns all keys of each first key's tensor, itself first."""
    keys: dict[str, list[str]] = {}
    for first, second in pairs.values():
        keys.setdefault(first, [first]).append(second)
    return keys


def check_equal(pairs: Mapping[str, StoredPair], source: WeightSource) -> None:
    """Checks that tied parameters that are stored twice have the same values.

    Raises:
        CheckpointError: two tensors that the model has as one have different values.
    """
    for first, second in differing(pairs, source).values():
        raise CheckpointError(
            f"{source.origin(second)}: {second!r} and {first!r} have different values, and the model has one tensor "
            "for both (tied weights): make the model by load_model(directory), which has both"
        )


def separated(config: Any, names: Collection[str] | None = None) -> Any | None:
    """Returns a configuration with untied tensors; None if the model has none, or does not support it.

    Args:
        config: configuration of a model.
        names: second names of the tensors; None for a decoder's head.
    """
    if isinstance(config, DecoderConfig | T5GemmaConfig):
        return replace(config, tied=False) if config.tied else None
    if isinstance(config, DecoderEncoderConfig):
        decoder = separated(config.decoder)
        return None if decoder is None else replace(config, decoder=decoder)
    if isinstance(config, EncoderConfig) and names is not None:
        return replace(config, untied=tuple(sorted({*config.untied, *names})))
    return None


def has_weights(directory: str | os.PathLike[str]) -> bool:
    """Returns True if a directory holds safetensors."""
    return any(os.path.exists(os.path.join(directory, name)) for name in (SINGLE_FILE, INDEX_FILE))


def _equal(source: WeightSource, first: str, second: str) -> bool:
    """Compares two stored tensors, a few rows at a time; True if one is not stored."""
    if second == first or not source.has(second) or not source.has(first):
        return True
    specs = source.spec(second), source.spec(first)
    if not all(spec.dtype.is_floating for spec in specs):
        return True
    if specs[0].shape != specs[1].shape:
        return False
    rows = specs[0].shape[0] if specs[0].shape else 1
    step = max(1, _ELEMENTS_AT_ONCE // max(1, specs[0].size // max(1, rows)))
    for start in range(0, rows, step):
        stop = min(rows, start + step)
        one, other = (np.asarray(source.read_rows(key, start, stop)) for key in (second, first))
        same = one.dtype == other.dtype and one.tobytes() == other.tobytes()
        if not same and not np.array_equal(one.astype(np.float32), other.astype(np.float32)):
            return False
    return True
