"""Tapeline: export, load and run transformers.

>>> import tapeline
>>> tapeline.VERSION.count(".")
2

``tapeline.export`` writes a bundle, ``tapeline.load`` opens one on a device::

    tapeline.export("demo", "tapeline-demo")
    with tapeline.load("tapeline-demo") as model:
        print(model.generate("It was the best of times,", max_new_tokens=60).text)

Names are imported at first use, so ``import tapeline`` does not load engines.
"""

import importlib
import sys
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
    from tapeline._comparing import compare_bundles
    from tapeline._inspecting import draw_graph, inspect_bundle, inspect_model, list_parameters, list_tensors
    from tapeline.bundle import Bundle
    from tapeline.cli import VERSION, Progress, ProgressEvent, TerminalProgress
    from tapeline.compare import Comparison, compare_dumps
    from tapeline.converting import Converted, convert
    from tapeline.exporting import ExportOptions, cached_export, export, predict_export
    from tapeline.finetuning import TrainedModel, TrainOptions, train
    from tapeline.grammar import Choices, JsonObject, JsonSchema, LarkGrammar, RegularExpression
    from tapeline.hub import HubError
    from tapeline.media.audio import AudioLimits
    from tapeline.media.images import ImageLimits
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
    from tapeline.running.transcribing import Transcription

__all__ = [
    "VERSION",
    "AudioLimits",
    "Bundle",
    "CheckpointError",
    "Choices",
    "Comparison",
    "CompileError",
    "ConfigError",
    "Conversation",
    "Converted",
    "DeviceError",
    "DumpOptions",
    "ExportOptions",
    "GenerateOptions",
    "GeneratedToken",
    "Generation",
    "HubError",
    "ImageLimits",
    "InputError",
    "JsonObject",
    "JsonSchema",
    "LarkGrammar",
    "LoadedModel",
    "Progress",
    "ProgressEvent",
    "RegularExpression",
    "Scores",
    "TapelineError",
    "TerminalProgress",
    "TokenStream",
    "TrainOptions",
    "TrainedModel",
    "Transcription",
    "VerificationError",
    "cached_export",
    "compare_bundles",
    "compare_dumps",
    "convert",
    "draw_graph",
    "export",
    "inspect_bundle",
    "inspect_model",
    "list_parameters",
    "list_tensors",
    "load",
    "predict_export",
    "train",
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
    "tapeline._comparing": ("compare_bundles",),
    "tapeline._inspecting": ("draw_graph", "inspect_bundle", "inspect_model", "list_parameters", "list_tensors"),
    "tapeline.media.audio": ("AudioLimits",),
    "tapeline.media.images": ("ImageLimits",),
    "tapeline.bundle": ("Bundle",),
    "tapeline.cli": ("VERSION", "Progress", "ProgressEvent", "TerminalProgress"),
    "tapeline.compare": ("Comparison", "compare_dumps"),
    "tapeline.converting": ("Converted", "convert"),
    "tapeline.exporting": ("ExportOptions", "cached_export", "export", "predict_export"),
    "tapeline.finetuning": ("TrainOptions", "TrainedModel", "train"),
    "tapeline.grammar": ("Choices", "JsonObject", "JsonSchema", "LarkGrammar", "RegularExpression"),
    "tapeline.hub": ("HubError",),
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
    "tapeline.running.transcribing": ("Transcription",),
}
_MODULE_OF: Final = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    """Imports a public name."""
    if name not in _MODULE_OF:
        # Python adds a near name of __dir__ to the message.
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name, obj=sys.modules[__name__])
    return getattr(importlib.import_module(_MODULE_OF[name]), name)


def __dir__() -> list[str]:
    """Returns the names of the module, those that are not imported yet included."""
    return sorted({*globals(), *__all__})
