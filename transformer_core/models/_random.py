"""Checkpoints with random weights for a configuration of any family."""

import os
import tempfile
from typing import Final

from lang_core import ConfigError, DType, InputError, MappingWeights
from transformer_core._names import CONFIG_FILE
from transformer_core.checkpoints import write_random_checkpoint
from transformer_core.checkpoints.quantized import quantization_fields
from transformer_core.family._registry import config_values
from transformer_core.models._load import load_model
from transformer_core.models._weights import stored_specs

_DTYPES: Final = ("bf16", "f16", "f32")


def write_random_model(
    directory: str | os.PathLike[str],
    config: str | os.PathLike[str],
    dtype: DType,
    *,
    seed: int = 0,
    shards: int = 1,
) -> list[str]:
    """Writes a checkpoint of random weights, under the keys that the configuration's family reads.

    Args:
        directory: directory to write, made if it is absent.
        config: path of the configuration, of any name, which is copied as ``config.json``.
        dtype: dtype of the weights: bf16, f16 or f32.
        seed: as for ``write_random_checkpoint``.
        shards: as for ``write_random_checkpoint``.

    Returns:
        The paths of the files.

    Raises:
        ConfigError: the model is not supported, or its weights are stored quantized.
        InputError: the dtype is another, or a file cannot be read or written.
    """
    if dtype.name not in _DTYPES:
        raise InputError(f"random weights are {', '.join(_DTYPES)}, not {dtype.name}")
    path = os.fspath(config)
    try:
        with open(path, encoding="utf-8") as file:
            content = file.read()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise InputError(f"{path}: cannot be read: {reason}: give the config.json of a model") from None
    with tempfile.TemporaryDirectory(prefix="tapeline-config-") as folder:
        named = os.path.join(folder, CONFIG_FILE)
        with open(named, "w", encoding="utf-8") as file:
            file.write(content)
        try:
            if quantization_fields(config_values(folder)) is not None:
                raise ConfigError(
                    f"{named}: field 'quantization_config': random weights are not quantised: take the field out"
                )
            specs = stored_specs(load_model(folder, dtype), MappingWeights({}))
        except ConfigError as error:
            raise type(error)(str(error).replace(named, path)) from None
    return write_random_checkpoint(directory, content, specs, seed=seed, shards=shards)
