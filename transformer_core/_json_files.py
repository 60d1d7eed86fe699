"""JSON files of Hugging Face's directories."""

from collections.abc import Mapping
from typing import Any

from lang_core import ConfigError, file_json
from transformer_core._config_fields import ConfigFields


def config_fields(path: str, remedy: str) -> ConfigFields:
    """Reads the fields of a JSON file that holds an object; arguments and errors as for ``json_object``."""
    return ConfigFields(json_object(path, remedy), path)


def json_object(path: str, remedy: str) -> Mapping[str, Any]:
    """Reads a JSON file that holds an object.

    Args:
        path: path of the file.
        remedy: advice for the message if the file is missing.

    Raises:
        ConfigError: the file is missing, unreadable or not a JSON object.
    """
    values = _json(path, remedy)
    if not isinstance(values, dict):
        raise ConfigError(f"{path}: expected a JSON object; found {type(values).__name__}: fetch the file again")
    return values


def json_array(path: str, remedy: str) -> list[Any]:
    """Reads a JSON file that holds an array; otherwise as ``json_object``."""
    values = _json(path, remedy)
    if not isinstance(values, list):
        raise ConfigError(f"{path}: expected a JSON array; found {type(values).__name__}: fetch the file again")
    return values


def _json(path: str, remedy: str) -> Any:
    try:
        return file_json(path, nonfinite=True)
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such file: {remedy}") from None
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror or error}") from None
    except ValueError as error:
        raise ConfigError(f"{path}: is no JSON: {error}: fetch the file again") from None
