"""What an export knows: the model it was asked for, and what came of it so far."""

import dataclasses
from collections import Counter
from dataclasses import dataclass
from typing import Any

from compile_hlo import LoweredModule
from compile_hlo.bundle import DebugConfig, PhaseMeter
from lang_core import EntryPoint, WeightSource
from tools.cli import say
from tools.exporting._options import ExportOptions, checked_entry_points
from tools.exporting._source import ModelSource
from transformer_core.checkpoints import Audit, audit
from transformer_core.models import (
    Model,
    Sizes,
    entry_points,
    load_model,
    stored_specs,
    tied_keys,
    unused_keys,
    weights_of,
)


@dataclass(slots=True)
class Export:
    """What an export knows so far.

    Attributes:
        options: what was asked for.
        model: the modules.
        sizes: those that were asked for, the others filled in.
        entry_points: what the bundle will offer.
        weights: the checkpoint under the model's names; None where none is wanted.
        audit: the checkpoint's keys; None without weights.
        meter: costs of the phases.
        lowered: the functions.
        nonfinite: NaNs and infinities per parameter.
        targets: for kernel_config.json.
        verification: for the report.
        hashes: sha256 per file, once the description is written.
        source: the form of the model's files, for kernel_config.json.
        dequantised: how many tensors of the checkpoint are packed, per encoding: the bundle has them unpacked.
        caches: bytes of caches and states, and what they would be if no cache were a ring.
        debug: the debug module, for kernel_config.json; None where none was asked for.
    """

    options: ExportOptions
    model: Model[Any]
    sizes: Sizes
    entry_points: tuple[EntryPoint, ...]
    weights: WeightSource | None
    audit: Audit | None
    meter: PhaseMeter
    lowered: LoweredModule = dataclasses.field(default_factory=LoweredModule)
    nonfinite: dict[str, Any] = dataclasses.field(default_factory=dict)
    targets: dict[str, dict[str, Any]] = dataclasses.field(default_factory=dict)
    verification: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    hashes: dict[str, str] = dataclasses.field(default_factory=dict)
    source: dict[str, Any] = dataclasses.field(default_factory=dict)
    dequantised: dict[str, int] = dataclasses.field(default_factory=dict)
    debug: DebugConfig | None = None
    caches: dict[str, int] = dataclasses.field(default_factory=dict)

    @property
    def vocabulary(self) -> int:
        """V; 0 of a model that takes no tokens."""
        return self.model.config.facts().get("vocabulary", 0)


def load(options: ExportOptions, source: ModelSource, meter: PhaseMeter) -> Export:
    """Reads the configuration, makes the modules and checks the checkpoint's keys; reads no weight.

    Raises:
        InputError: configuration, checkpoint and sizes do not fit each other.
    """
    model = load_model(source.directory, options.dtype, options.num_layers, weights=source.weights is not None)
    sizes = model.sizes(options.batch, options.sequence, options.max_sequence)
    points, whole = (_entry_points(model, options, sizes, kind) for kind in (options.window_caches, "whole"))
    found = weights = None
    dequantised: dict[str, int] = {}
    if source.weights is not None:
        weights = weights_of(model, source.weights)
        wanted = stored_specs(model, source.weights)
        tied = tied_keys(model, source.weights)
        found = audit(source.weights, wanted, tied=tied, ignorable=unused_keys(model, source.weights))
        dequantised = _dequantised(source.weights, found)
    export = Export(options, model, sizes, points, weights, found, meter)
    export.source, export.dequantised = source.facts, dequantised
    export.caches = {"bytes": _cache_bytes(points), "bytes_if_whole": _cache_bytes(whole)}
    return export


def entry_points_in(dtype: str, export: Export, source: ModelSource) -> tuple[EntryPoint, ...]:
    """The same entry points in another dtype."""
    options = export.options
    model = load_model(source.directory, dtype, options.num_layers, weights=source.weights is not None)
    return _entry_points(model, options, export.sizes, options.window_caches)


def _entry_points(model: Model[Any], options: ExportOptions, sizes: Sizes, caches: str) -> tuple[EntryPoint, ...]:
    return entry_points(
        model,
        names=checked_entry_points(options.entry_points, model),
        batch=sizes.batch,
        sequence=sizes.sequence,
        max_sequence=sizes.max_sequence,
        window_caches=caches,
        positions=options.positions,
        score_tokens=options.score_tokens,
    )


def _cache_bytes(points: tuple[EntryPoint, ...]) -> int:
    """Of the caches and states of one session: every entry point has the same."""
    return max(sum(a.spec.nbytes for a in point.arguments if a.alias_result is not None) for point in points)


def _dequantised(source: WeightSource, audited: Audit) -> dict[str, int]:
    """Counts the packed tensors, and says that they are unpacked."""
    encodings = Counter(kind for key in audited.used if (kind := source.encoding(key)) is not None)
    if encodings:
        kinds = ", ".join(f"{count} {kind}" for kind, count in encodings.most_common())
        say(f"packed weights ({kinds} tensors) are dequantised: the bundle holds them unpacked")
    return dict(encodings)
