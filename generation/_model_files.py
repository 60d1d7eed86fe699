"""JSON files of a model or a bundle that generation reads."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from lang_core import ConfigError, file_json

CONFIG_FILE: Final = "config.json"
GENERATION_FILE: Final = "generation_config.json"


def read_object(path: Path) -> Mapping[str, Any]:
    """Returns the JSON object in a file.

    Raises:
        ConfigError: the file is missing, or is not a JSON object.
    """
    try:
        loaded = file_json(path, nonfinite=True)
    except OSError as error:
        raise ConfigError(
            f"cannot read {path}: {error.strerror}; the directory must be a model's or a bundle"
        ) from error
    except ValueError as error:  # of JSON or of UTF-8
        raise ConfigError(f"{path} is not JSON ({error}): copy it again from the model's source") from error
    if not isinstance(loaded, dict):
        raise ConfigError(f"{path} holds a JSON {type(loaded).__name__}, expected an object")
    return loaded
