"""The built-in demo model as a Hugging Face directory."""

import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any, Final

from lang_core import InputError
from tapeline.demo._config import CONFIG, GENERATION_CONFIG, TOKENIZER_CONFIG

TOKENIZER: Final = Path(__file__).with_name("tokenizer.json")
"""Path of the demo model's tokenizer."""
WEIGHTS: Final = Path(__file__).with_name("weights.safetensors")
"""Path of the demo model's weights."""


def write_demo_checkpoint(directory: Path) -> None:
    """Writes config.json, generation_config.json, model.safetensors, tokenizer.json and tokenizer_config.json.

    The same bytes every time. The directory is made if it is missing. Each file appears whole or not at all.

    Raises:
        InputError: the directory cannot be made or written.
    """
    writers: dict[str, Callable[[IO[bytes]], object]] = {
        "tokenizer.json": lambda file: file.write(TOKENIZER.read_bytes()),
        "tokenizer_config.json": lambda file: file.write(_json(TOKENIZER_CONFIG)),
        "generation_config.json": lambda file: file.write(_json(GENERATION_CONFIG)),
        "model.safetensors": lambda file: file.write(WEIGHTS.read_bytes()),
        "config.json": lambda file: file.write(_json(CONFIG)),  # last: without it there is no model
    }
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for name, write in writers.items():
            _write(directory / name, write)
    except OSError as error:
        raise InputError(
            f"cannot write the demo model to {directory}: {error.strerror} ({error.filename}); "
            "name a directory that can be written and has 2 MB free"
        ) from error


def _write(path: Path, write: Callable[[IO[bytes]], object]) -> None:
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with open(handle, "wb") as file:
            write(file)
        os.chmod(name, 0o644)
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _json(value: dict[str, Any]) -> bytes:
    return (json.dumps(value, indent=2) + "\n").encode()
