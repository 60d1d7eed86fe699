"""Where a model comes from: a Hugging Face directory, or the built-in demo."""

import contextlib
import hashlib
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from compile_hlo.bundle import sha256_of
from lang_core import InputError, WeightSource
from tools.demo import write_demo_checkpoint
from transformer_core.checkpoints import SafetensorsCheckpoint


@dataclass(frozen=True, slots=True)
class ModelSource:
    """A model's files.

    Attributes:
        name: what the user called it.
        directory: holds config.json, and the tokenizer's files if there are any.
        weights: the checkpoint; None where none was asked for.
        identity: tells its files from others, and from themselves once they are changed.
    """

    name: str
    directory: Path
    weights: WeightSource | None
    identity: str


@contextlib.contextmanager
def open_source(model: str, path: Path, with_weights: bool) -> Iterator[ModelSource]:
    """Opens a model.

    Args:
        model: the flag's value.
        path: the same as a path of the user's.
        with_weights: whether the checkpoint is wanted.

    Raises:
        InputError: there is no such model, or it is damaged.
    """
    with contextlib.ExitStack() as stack:
        if model == "demo":
            path = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tapeline-demo-")))
            write_demo_checkpoint(path)
        elif path.suffix == ".gguf":
            raise InputError(f"--model={model}: GGUF files are not supported yet: give a Hugging Face directory")
        elif not path.is_dir():
            raise InputError(
                f"--model={model}: there is no directory {path}: give a Hugging Face directory (config.json and "
                f"*.safetensors) or demo"
            )
        weights = stack.enter_context(SafetensorsCheckpoint(path)) if with_weights else None
        yield ModelSource(model, path, weights, _identity(path, contents=model == "demo"))


def _identity(directory: Path, *, contents: bool) -> str:
    """A checkpoint's files by name, size and time of change; by their contents where they are made anew each time."""
    digest = hashlib.sha256()
    for path in sorted(directory.iterdir()):
        if path.suffix in (".safetensors", ".json"):
            status = path.stat()
            told = sha256_of(path) if contents else f"{status.st_size} {status.st_mtime_ns}"
            digest.update(f"{path.name} {told}\n".encode())
    return digest.hexdigest()
