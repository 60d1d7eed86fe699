"""Names of models on the hub, the place of their files on this machine, and the error of both."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

from lang_core import InputError

MAIN: Final = "main"

Need = Literal["weights", "headers", "config"]
"""Files that are wanted of a model: all of them, the headers of its weights only, or no weights."""

_PART: Final = r"[A-Za-z0-9_](?:[A-Za-z0-9_.-]{0,94}[A-Za-z0-9_])?"
_REVISION: Final = r"[A-Za-z0-9_][A-Za-z0-9_./+-]{0,250}"
_NAME: Final = re.compile(rf"(?P<repository>{_PART}/{_PART})(?:@(?P<revision>{_REVISION}))?(?::(?P<file>.+))?")
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
    """Returns the parts of a name such as ``org/name@revision:FILE.gguf``; None if the text is not such a name."""
    match = _NAME.fullmatch(text)
    if match is None or match["repository"].lower().endswith(_FILES):
        return None
    revision = match["revision"] or MAIN
    if any(part in ("", ".", "..") for part in revision.split("/")):
        return None
    return HubName(match["repository"], revision, match["file"])
