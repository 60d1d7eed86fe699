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

from typing import TYPE_CHECKING

from lang_core import export_lazily

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

export_lazily(__name__)
