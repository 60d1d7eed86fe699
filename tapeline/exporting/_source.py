"""Source of a model: a Hugging Face directory, a GGUF file, a model of the hub, or the built-in demo."""

import contextlib
import hashlib
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from lang_core import InputError, WeightSource, checked_choices
from tapeline.bundle import sha256_of
from tapeline.cli import Progress, ProgressEvent, no_progress
from tapeline.demo import write_demo_checkpoint
from tapeline.exporting._sentence_layout import in_own_layout
from tapeline.hub import resolve_model
from tapeline.quantizing import QuantizationPlan
from tapeline.text import UnreadTokenizerError, write_gguf_tokenizer
from transformer_core import CONFIG_FILE
from transformer_core.checkpoints import SINGLE_FILE, Adapter, SafetensorsCheckpoint
from transformer_core.models import QuantizedWeights, unquantized
from transformer_core.models.gguf import GgufModel

_OTHERS: Final = ("adapter_model.safetensors", "consolidated.safetensors")  # the same weights in other forms
_SHOWN: Final = 4


@dataclass(frozen=True, slots=True)
class ModelSource:
    """A model's files.

    Attributes:
        name: name that the user gave.
        path: the directory, or the GGUF file.
        directory: holds config.json, and the tokenizer's files if there are any.
        weights: the checkpoint; None if none was asked for.
        header: the checkpoint, of which only the header may be read; None if there is none to read.
        identity: tells its files from others, and from themselves once they are changed.
        facts: in which form its files are, for the bundle's description.
        adapters: LoRA adapters that are merged into the weights as they are read.
        plan: encodings that were chosen by measured loss; None without.
    """

    name: str
    path: Path
    directory: Path
    weights: WeightSource | None
    header: WeightSource | None
    identity: str
    facts: dict[str, Any]
    adapters: tuple[Adapter, ...] = ()
    plan: QuantizationPlan | None = None


@checked_choices
@contextlib.contextmanager
def open_source(
    model: str, path: Path, with_weights: bool, progress: Progress = no_progress, *, headers_only: bool = False
) -> Iterator[ModelSource]:
    """Opens a model.

    Args:
        model: name of the model: ``demo``, a name of the hub, or the path for messages.
        path: directory or file; a model of the hub is taken if there is none.
        with_weights: True opens the checkpoint as well.
        progress: receives warnings, and bytes that are downloaded.
        headers_only: True if weights will not be read, so they are not downloaded.

    Raises:
        InputError: the model does not exist or is damaged.
    """
    with contextlib.ExitStack() as stack:
        if model == "demo":
            path = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tapeline-demo-")))
            write_demo_checkpoint(path)
        need = "config" if not with_weights else "headers" if headers_only else "weights"
        location = stack.enter_context(resolve_model(model, path, need, progress))
        if location.path.is_file():
            source = _gguf_source(model, stack.enter_context(GgufModel(location.path)), stack, with_weights, progress)
        else:
            source = _directory_source(model, location.path, stack, with_weights, progress)
        hub = {"hub": dict(location.facts)} if location.facts else {}
        yield replace(source, facts={**source.facts, **hub})


def _directory_source(
    model: str, path: Path, stack: contextlib.ExitStack, with_weights: bool, progress: Progress
) -> ModelSource:
    """A Hugging Face directory."""
    _check_no_gguf(model, path)
    path = in_own_layout(path, stack, with_weights=with_weights)
    facts: dict[str, Any] = {"format": "safetensors"}
    weights = None
    if with_weights:
        checkpoint = stack.enter_context(SafetensorsCheckpoint(path))
        weights = unquantized(path, checkpoint)
        notes = _unlisted_notes(checkpoint)
        if isinstance(weights, QuantizedWeights):
            facts["quantization"] = weights.method
            notes += weights.notes
        if notes:
            facts["notes"] = notes
        for note in notes:
            progress(ProgressEvent(note))
    return ModelSource(model, path, path, weights, weights, _identity(path, contents=model == "demo"), facts)


def _unlisted_notes(checkpoint: SafetensorsCheckpoint) -> list[str]:
    """Returns a warning about files with weights that are not read, or None without such files."""
    names = [name for name in checkpoint.unlisted if name not in _OTHERS]
    if not names:
        return []
    shown = ", ".join(names[:_SHOWN]) + (f" and {len(names) - _SHOWN} more" if names[_SHOWN:] else "")
    return [
        f"warning: not read, because the checkpoint's index or its {SINGLE_FILE} counts alone: {shown}: if these files "
        "belong to the model, fetch its index again"
    ]


def _gguf_source(
    model: str, file: GgufModel, stack: contextlib.ExitStack, with_weights: bool, progress: Progress
) -> ModelSource:
    """A GGUF file, and a directory with its metadata."""
    directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tapeline-gguf-")))
    file.write_description(directory)
    try:
        for note in write_gguf_tokenizer(file.metadata, file.path, directory):
            progress(ProgressEvent(f"warning: {note}"))
    except UnreadTokenizerError as error:
        progress(
            ProgressEvent(f"warning: {error}: the bundle will have no tokenizer; put one beside it, or use `token_ids`")
        )
    states = [Path(path).stat() for path in file.paths]
    told = " ".join(f"{state.st_size} {state.st_mtime_ns}" for state in states)
    identity = f"{_identity(directory, contents=True)} {told}"
    return ModelSource(model, Path(file.path), directory, file if with_weights else None, file, identity, file.facts())


def _check_no_gguf(model: str, directory: Path) -> None:
    files = sorted(path.name for path in directory.glob("*.gguf"))
    if files and not (directory / CONFIG_FILE).exists():
        raise InputError(f"model={model}: {directory} has no {CONFIG_FILE}, but {', '.join(files[:4])}: give the file")


def _identity(directory: Path, *, contents: bool) -> str:
    """A checkpoint's files by name, size and time of change; by their contents if they are made anew each time."""
    digest = hashlib.sha256()
    for path in sorted([*directory.iterdir(), *directory.glob("[0-9]*_*/*")]):
        if path.suffix in (".safetensors", ".json") and path.is_file():
            status = path.stat()
            told = sha256_of(path) if contents else f"{status.st_size} {status.st_mtime_ns}"
            digest.update(f"{path.relative_to(directory)} {told}\n".encode())
    return digest.hexdigest()
