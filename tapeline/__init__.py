"""Tapeline: export, load and run transformers.

>>> import tapeline
>>> tapeline.VERSION.count(".")
2

``tapeline.export`` writes a bundle, ``tapeline.load`` opens one on a device::

    tapeline.export("demo", "tapeline-demo")
    with tapeline.load("tapeline-demo") as model:
        print(model.generate("It was the best of times,", max_new_tokens=60).text)

Names are imported when they are first asked for, so that ``import tapeline`` loads no engine.
"""

import importlib
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from lang_core import (
        CheckpointError,
        CompileError,
        ConfigError,
        DeviceError,
        InputError,
        TapelineError,
        VerificationError,
    )
    from tapeline.bundle import Bundle
    from tapeline.cli import VERSION, Progress, ProgressEvent, TerminalProgress
    from tapeline.exporting import ExportOptions, export, predict_export
    from tapeline.running import (
        Conversation,
        DumpOptions,
        GeneratedToken,
        GenerateOptions,
        Generation,
        LoadedModel,
        Scores,
        TokenStream,
        load,
    )

__all__ = [
    "VERSION",
    "Bundle",
    "CheckpointError",
    "CompileError",
    "ConfigError",
    "Conversation",
    "DeviceError",
    "DumpOptions",
    "ExportOptions",
    "GenerateOptions",
    "GeneratedToken",
    "Generation",
    "InputError",
    "LoadedModel",
    "Progress",
    "ProgressEvent",
    "Scores",
    "TapelineError",
    "TerminalProgress",
    "TokenStream",
    "VerificationError",
    "export",
    "load",
    "predict_export",
]

_MODULES: Final = {
    "lang_core": (
        "CheckpointError",
        "CompileError",
        "ConfigError",
        "DeviceError",
        "InputError",
        "TapelineError",
        "VerificationError",
    ),
    "tapeline.bundle": ("Bundle",),
    "tapeline.cli": ("VERSION", "Progress", "ProgressEvent", "TerminalProgress"),
    "tapeline.exporting": ("ExportOptions", "export", "predict_export"),
    "tapeline.running": (
        "Conversation",
        "DumpOptions",
        "GenerateOptions",
        "GeneratedToken",
        "Generation",
        "LoadedModel",
        "Scores",
        "TokenStream",
        "load",
    ),
}
_MODULE_OF: Final = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    """Imports a public name."""
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_MODULE_OF[name]), name)
