"""What an export knows: the model it was asked for, and what came of it so far."""

import dataclasses
from dataclasses import dataclass
from typing import Any, Final

from compile_hlo import LoweredModule
from compile_hlo.bundle import DebugConfig, PhaseMeter
from lang_core import EntryPoint, WeightSource
from tools.exporting._options import ExportOptions
from tools.exporting._source import ModelSource
from transformer_core.checkpoints import IGNORABLE, Audit, audit
from transformer_core.models import (
    DecoderLM,
    entry_points,
    load_config,
    stored_specs,
    tied_keys,
    unused_layers,
    weights_of,
)

# Positions that caches hold where nobody says how many, if the model was trained on as many.
DEFAULT_CAPACITY: Final = 2048


@dataclass(slots=True)
class Export:
    """What an export knows so far.

    Attributes:
        options: what was asked for.
        model: the modules.
        entry_points: what the bundle will offer.
        weights: the checkpoint under the model's names; None where none is wanted.
        audit: the checkpoint's keys; None without weights.
        meter: costs of the phases.
        lowered: the functions.
        nonfinite: NaNs and infinities per parameter.
        targets: for kernel_config.json.
        verification: for the report.
        hashes: sha256 per file, once the description is written.
        debug: the debug module, for kernel_config.json; None where none was asked for.
    """

    options: ExportOptions
    model: DecoderLM
    entry_points: tuple[EntryPoint, ...]
    weights: WeightSource | None
    audit: Audit | None
    meter: PhaseMeter
    lowered: LoweredModule = dataclasses.field(default_factory=LoweredModule)
    nonfinite: dict[str, Any] = dataclasses.field(default_factory=dict)
    targets: dict[str, dict[str, Any]] = dataclasses.field(default_factory=dict)
    verification: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    hashes: dict[str, str] = dataclasses.field(default_factory=dict)
    debug: DebugConfig | None = None


def load(options: ExportOptions, source: ModelSource, meter: PhaseMeter) -> Export:
    """Reads the configuration, makes the modules and checks the checkpoint's keys; reads no weight.

    Raises:
        InputError: configuration, checkpoint and sizes do not fit each other.
    """
    config = load_config(source.directory, weights=source.weights is not None)
    model = DecoderLM(config, options.dtype, options.num_layers)
    if options.max_sequence is None:
        capacity = max(options.sequence, min(config.rope.trained_length, DEFAULT_CAPACITY))
        options = dataclasses.replace(options, max_sequence=capacity)
    points = entry_points(
        model,
        names=options.entry_points,
        batch=options.batch,
        sequence=options.sequence,
        max_sequence=options.max_sequence,
    )
    found = weights = None
    if source.weights is not None:
        weights = weights_of(model, source.weights)
        wanted = stored_specs(model, source.weights)
        tied = tied_keys(model, source.weights)
        beyond = unused_layers(model, config)
        found = audit(source.weights, wanted, tied=tied, ignorable=[*IGNORABLE, *beyond])
    return Export(options, model, points, weights, found, meter)
