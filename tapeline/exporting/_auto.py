"""Encodings of an export that are chosen by measured loss (``quantize=auto``)."""

import contextlib
import hashlib
import json
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

from lang_core import InputError
from tapeline.bundle import PhaseMeter
from tapeline.cli import Progress
from tapeline.exporting._options import ExportOptions
from tapeline.exporting._source import ModelSource
from tapeline.quantizing import AUTO, CALIBRATION_TOKENS, Budget, QuantizationPlan, plan_quantization, read_calibration
from tapeline.text import find_tokenizer
from transformer_core.models import DecoderLM, load_model, stored_encodings, weights_of

_PHASE: Final = "quantize"
_BLOCKS: Final = "q8_0"  # encoding that takes every matrix that any encoding takes


def planned_source(
    source: ModelSource,
    budget: Budget,
    calibration: Path | None,
    tokens: int,
    num_layers: int | None,
    folder: Path,
    progress: Progress,
) -> QuantizationPlan:
    """Returns the plan of a model's encodings.

    Args:
        source: decoder with its weights and tokenizer.
        budget: limit of size or loss.
        calibration: file of text; the built-in text if None.
        tokens: the most tokens that are taken of it.
        num_layers: number of layers; all if None.
        folder: existing directory for packed matrices.
        progress: receives steps.

    Raises:
        InputError: the model is not a decoder of text, it has no tokenizer, or the budget is too small.
    """
    assert source.weights is not None
    model = load_model(source.directory, "f32", num_layers, adapters=source.adapters)
    if not isinstance(model, DecoderLM):
        raise InputError(
            f"quantize={AUTO}: measures the loss of next tokens, and {model.config.architecture} predicts none: name "
            f"an encoding, such as quantize={_BLOCKS}"
        )
    if find_tokenizer(source.directory) is None:
        raise InputError(
            f"quantize={AUTO}: measures loss over a text, and {source.name} has no tokenizer: put its files beside "
            f"the weights, or name an encoding, such as quantize={_BLOCKS}"
        )
    packed = load_model(source.directory, "f32", num_layers, quantize=_BLOCKS, adapters=source.adapters)
    matrices = {
        path: parameter.spec.shape for path, parameter in packed.named_parameters() if parameter.encoding is not None
    }
    stored = stored_encodings(model, source.weights, source.adapters)
    ids = read_calibration(source.directory, calibration, tokens)
    weights = weights_of(model, source.weights, source.adapters)
    return plan_quantization(model, weights, matrices, stored, ids, budget, folder, progress)


@contextlib.contextmanager
def with_plan(
    source: ModelSource, options: ExportOptions, meter: PhaseMeter, progress: Progress
) -> Iterator[ModelSource]:
    """Measures and chooses the encodings that an export asks for; yields the source with them.

    Args:
        source: model's files.
        options: options of the export.
        meter: measures the phase ``quantize``.
        progress: receives steps.

    Raises:
        InputError: see ``planned_source``.
    """
    if options.budget is None:
        yield source
        return
    with tempfile.TemporaryDirectory(prefix="tapeline-packed-") as folder:
        with meter.phase(_PHASE):
            plan = planned_source(
                source,
                options.budget,
                options.calibration,
                CALIBRATION_TOKENS,
                options.num_layers,
                Path(folder),
                progress,
            )
        digest = hashlib.sha256(json.dumps(plan.facts, sort_keys=True).encode()).hexdigest()
        yield replace(source, plan=plan, identity=f"{source.identity} {digest}")
