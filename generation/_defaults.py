"""Default sampling of a model: the recommendation in its files, or else the same settings for every model."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from generation._config import SamplingConfig
from generation._model_files import GENERATION_FILE, read_object
from lang_core import ConfigError

DEFAULT_SAMPLING: Final = SamplingConfig(temperature=0.8, top_k=40, top_p=0.95, min_p=0.05)
"""Sampling of a model that recommends nothing: llama.cpp's defaults."""

SAMPLING_FIELDS: Final = ("temperature", "top_k", "top_p", "min_p", "repetition_penalty")
"""Fields that a model's files may recommend, and that a request may give one by one."""


def default_sampling(generation_config: Mapping[str, Any]) -> SamplingConfig:
    """Returns the default sampling for chat, the server and its page.

    Each field of ``generation_config`` counts by itself; a field that is absent or null has the value of
    ``DEFAULT_SAMPLING``. ``"do_sample": false`` is temperature 0, which is greedy.

    Args:
        generation_config: contents of a model's generation_config.json; empty if the model has none.

    Raises:
        ConfigError: a value is of the wrong type or out of its range.

    >>> default_sampling({"temperature": 0.6, "top_k": -1})
    SamplingConfig(temperature=0.6, top_k=0, top_p=0.95, min_p=0.05, repetition_penalty=1.0, seed=0, \
presence_penalty=0.0, frequency_penalty=0.0, logit_bias={})
    >>> default_sampling({"temperature": 0.6, "do_sample": False}).temperature
    0.0
    """
    values = {name: generation_config[name] for name in SAMPLING_FIELDS if generation_config.get(name) is not None}
    samples = generation_config.get("do_sample", True)
    if samples is not None and not isinstance(samples, bool):
        raise ConfigError(f"do_sample={samples!r}: expected true, false or null")
    if values.get("top_k") == -1:  # all tokens, as vLLM writes it
        values["top_k"] = 0
    if samples is False:
        values["temperature"] = 0.0
    return replace(DEFAULT_SAMPLING, **values)


def load_default_sampling(directory: Path) -> SamplingConfig:
    """Returns ``default_sampling`` of the generation_config.json in a model's directory or a bundle.

    Raises:
        ConfigError: the file is damaged, or a value is of the wrong type or out of its range.
    """
    path = directory / GENERATION_FILE
    if not path.exists():
        return DEFAULT_SAMPLING
    values = read_object(path)
    try:
        return default_sampling(values)
    except ConfigError as error:
        name, _, problem = str(error).partition("=")  # a field of the file, and no flag
        raise ConfigError(f"{path}: field {name!r}: {problem}") from error
