"""Finds a model's or an adapter's files: local ones, or those that the hub has under the name."""

import contextlib
import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from lang_core import InputError, checked_choices
from tapeline.cli import Progress, no_progress
from tapeline.hub._names import HubError, HubName, ModelLocation, Need, parse_hub_name

_LOCAL: Final = "a Hugging Face directory (config.json and *.safetensors), a .gguf file, demo"
_FORMS: Final = "org/name[@revision], org/name:FILE.gguf or org/name:Q4_K_M for a model of the hub"


@checked_choices
@contextlib.contextmanager
def resolve_model(
    model: str, path: Path, need: Need = "weights", progress: Progress = no_progress
) -> Iterator[ModelLocation]:
    """Finds a model's files, and downloads them if the name is one of the hub and they are not in its cache.

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
    """Checks that a model is an existing path or a valid name of the hub, without asking the hub.

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
    """Adds the request to errors of the hub, and that a local file with the name does not exist."""
    try:
        yield
    except HubError as error:
        raise HubError(f"{option}={text}: there is no directory or file {path}, and {error}") from error.__cause__


def _snapshots() -> Any:
    """Returns the module that talks to the hub; its import is slow."""
    return importlib.import_module("tapeline.hub._snapshot")
