"""Names that a user gives, as files on this machine: local ones, or those of the hub."""

import contextlib
import importlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

from lang_core import InputError, checked_choices
from tapeline.cli import Progress, no_progress

MAIN: Final = "main"

Need = Literal["weights", "headers", "config"]
"""Files that are wanted of a model: all of them, the headers of its weights only, or no weights."""

_PART: Final = r"[A-Za-z0-9_](?:[A-Za-z0-9_.-]{0,94}[A-Za-z0-9_])?"
_REVISION: Final = r"[A-Za-z0-9_][A-Za-z0-9_./+-]{0,250}"
_NAME: Final = re.compile(rf"(?P<repository>{_PART}/{_PART})(?:@(?P<revision>{_REVISION}))?(?::(?P<file>.+))?")
_LOCAL: Final = "a Hugging Face directory (config.json and *.safetensors), a .gguf file, demo"
_FORMS: Final = "org/name[@revision], org/name:FILE.gguf or org/name:Q4_K_M for a model of the hub"
# Endings of a path that was mistyped; no repository has them.
_FILES: Final = (".gguf", ".safetensors", ".json", ".bin", ".pt", ".pth", ".onnx", ".h5")


class HubError(InputError):
    """A model could not be had from the hub: name, revision, access, connection, space or content."""


class HubName(NamedTuple):
    """Name of a model, or of a file of it, on the hub.

    Attributes:
        repository: organisation or user, and name.
        revision: branch, tag or commit.
        file: GGUF file, or name of a quantisation; None for safetensors.
    """

    repository: str
    revision: str = MAIN
    file: str | None = None


@dataclass(frozen=True, slots=True)
class ModelLocation:
    """Place of a model's files on this machine.

    Attributes:
        path: directory or file.
        facts: repository, revision, commit and SHA-256 of the files for the report; empty for local files.
    """

    path: Path
    facts: Mapping[str, Any] = field(default_factory=dict)


def parse_hub_name(text: str) -> HubName | None:
    """Returns the parts of a name such as ``org/name@revision:FILE.gguf``; None if the text is no such name."""
    match = _NAME.fullmatch(text)
    if match is None or match["repository"].lower().endswith(_FILES):
        return None
    revision = match["revision"] or MAIN
    if any(part in ("", ".", "..") for part in revision.split("/")):
        return None
    return HubName(match["repository"], revision, match["file"])


@checked_choices
@contextlib.contextmanager
def resolve_model(
    model: str, path: Path, need: Need = "weights", progress: Progress = no_progress
) -> Iterator[ModelLocation]:
    """Finds a model's files, and downloads them where the name is one of the hub and they are not in its cache.

    A local directory or file of that name wins.

    Args:
        model: name as the user gave it.
        path: the same as a path on this machine.
        need: ``headers`` gives files with the true headers and holes for data, without downloading the weights.
        progress: receives bytes and warnings.

    Raises:
        InputError: neither a path nor a name of the hub.
        HubError: the hub does not have it or does not give it.
    """
    if not model.strip():
        raise InputError(f"model: the name is empty: give {_LOCAL}, or {_FORMS}")
    if _is_there(path):
        yield ModelLocation(path)
        return
    name = _hub_name("model", model, path, _LOCAL)
    with contextlib.ExitStack() as stack:
        with _told("model", model, path):
            location = stack.enter_context(_snapshots().model_files(name, need, progress))
        yield location


def check_model(model: str, path: Path) -> None:
    """Checks that a model is a path that exists or a name of the hub, and asks no hub.

    Args:
        model: name as the user gave it.
        path: the same as a path on this machine.

    Raises:
        InputError: neither a path nor a name of the hub.
    """
    if not _is_there(path):
        _hub_name("model", model, path, _LOCAL)


def resolve_adapter(adapter: str, path: Path, progress: Progress = no_progress) -> ModelLocation:
    """Finds an adapter's directory, as ``resolve_model`` finds a model.

    Raises:
        InputError: neither a directory nor a name of the hub.
        HubError: the hub does not have it or does not give it.
    """
    if _is_there(path):
        return ModelLocation(path)
    name = _hub_name("adapter", adapter, path, "a directory of PEFT (adapter_config.json, adapter_model.safetensors)")
    with _told("adapter", adapter, path):
        return _snapshots().adapter_files(name, progress)


def _is_there(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:  # a name that is too long for the file system
        return False


def _hub_name(option: str, text: str, path: Path, local: str) -> HubName:
    name = parse_hub_name(text)
    if name is None:
        raise InputError(f"{option}={text}: there is no directory or file {path}: give {local}, or {_FORMS}")
    return name


@contextlib.contextmanager
def _told(option: str, text: str, path: Path) -> Iterator[None]:
    """Says in errors of the hub what was asked, and that no local file has the name."""
    try:
        yield
    except HubError as error:
        raise HubError(f"{option}={text}: there is no directory or file {path}, and {error}") from error.__cause__


def _snapshots() -> Any:
    """Returns the module that talks to the hub, whose import is slow."""
    return importlib.import_module("tapeline.hub._snapshot")
