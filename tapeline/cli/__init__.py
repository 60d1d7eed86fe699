"""Text, progress, paths and exit codes that programs share."""

import importlib
from typing import TYPE_CHECKING, Any

from tapeline.cli._events import Progress, ProgressEvent, no_progress
from tapeline.cli._main import (
    EXIT_INPUT,
    EXIT_OTHER,
    check_writable,
    guarded,
    open_streams,
    output_file,
    run,
    user_path,
    whole_file,
)
from tapeline.cli._say import say, say_error, saying, show
from tapeline.cli._size import parse_size, size_text
from tapeline.cli._table import table
from tapeline.cli._version import VERSION

if TYPE_CHECKING:
    from tapeline.cli._progress import ByteProgress, StepProgress, TerminalProgress

__all__ = [
    "EXIT_INPUT",
    "EXIT_OTHER",
    "VERSION",
    "ByteProgress",
    "Progress",
    "ProgressEvent",
    "StepProgress",
    "TerminalProgress",
    "check_writable",
    "guarded",
    "no_progress",
    "open_streams",
    "output_file",
    "parse_size",
    "run",
    "say",
    "say_error",
    "saying",
    "show",
    "size_text",
    "table",
    "user_path",
    "whole_file",
]


def __getattr__(name: str) -> Any:
    """Imports the classes that draw bars when they are first asked for, because that import is slow."""
    if name in ("ByteProgress", "StepProgress", "TerminalProgress"):
        return getattr(importlib.import_module("tapeline.cli._progress"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
