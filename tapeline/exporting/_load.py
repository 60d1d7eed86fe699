"""State of an export: the model that is asked for, and the results so far."""

import dataclasses
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from compile_hlo import LoweredModule
from lang_core import ENCODINGS, EntryPoint, WeightSource
from tapeline.bundle import DebugConfig, PhaseMeter
from tapeline.cli import Progress, ProgressEvent
from tapeline.exporting._kernels import ChosenKernels
from tapeline.exporting._options import ExportOptions, checked_entry_points
from tapeline.exporting._source import ModelSource
from transformer_core import STORED, keep_packed
from transformer_core.checkpoints import Audit, DequantizedWeights, PackedWeights, audit
from transformer_core.flow import CompileProfile
from transformer_core.models import (
    Model,
    entry_points,
    load_model,
    stored_encodings,
    stored_specs,
    tied_keys,
    unused_keys,
    weights_of,
)

_MIB: Final = 2**20
_NUMBER: Final = re.compile(r"\.\d+\.")


@dataclass(slots=True)
class Export:
    """State of an export.

    Attributes:
        options: options of the export.
        model: the modules.
        sizes: sizes that were asked for, and defaults for the others.
        entry_points: entry points of the bundle, with kernels in them where they were asked for.
        written: the same entry points without kernels; results are compared with theirs.
        weights: checkpoint under the model's names; None where no weights are written.
        audit: the checkpoint's keys; None without weights.
        meter: costs of the phases.
        progress: receives steps and warnings.
        lowered: the functions.
        nonfinite: NaNs and infinities per parameter.
        targets: for kernel_config.json.
        verification: for the report.
        hashes: sha256 per file, once the description is written.
        packed: counts and bytes of packed weights, for the report; empty where none is packed.
        source: the form of the model's files, for kernel_config.json.
        dequantised: number of tensors per encoding that are packed in the checkpoint and not in the bundle.
        caches: bytes of caches and states, and their bytes if no cache were a ring.
        kernels: configurations of the calls of kernels; None without kernels.
        debug: description of the debug module, for kernel_config.json; None where there is none.
    """

    options: ExportOptions
    model: Model[Any]
    sizes: CompileProfile
    entry_points: tuple[EntryPoint, ...]
    written: tuple[EntryPoint, ...]
    weights: WeightSource | None
    audit: Audit | None
    meter: PhaseMeter
    progress: Progress
    lowered: LoweredModule = dataclasses.field(default_factory=LoweredModule)
    nonfinite: dict[str, Any] = dataclasses.field(default_factory=dict)
    targets: dict[str, dict[str, Any]] = dataclasses.field(default_factory=dict)
    verification: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    hashes: dict[str, str] = dataclasses.field(default_factory=dict)
    source: dict[str, Any] = dataclasses.field(default_factory=dict)
    dequantised: dict[str, int] = dataclasses.field(default_factory=dict)
    packed: dict[str, Any] = dataclasses.field(default_factory=dict)
    debug: DebugConfig | None = None
    caches: dict[str, int] = dataclasses.field(default_factory=dict)
    kernels: ChosenKernels | None = None

    @property
    def vocabulary(self) -> int:
        """Size of the vocabulary, V; 0 for a model that takes no tokens."""
        return self.model.config.facts().get("vocabulary", 0)


def load(options: ExportOptions, source: ModelSource, meter: PhaseMeter, progress: Progress) -> Export:
    """Reads the configuration, makes the modules and checks the checkpoint's keys; reads no weight.

    Raises:
        InputError: configuration, checkpoint and sizes do not fit each other.
    """
    model = _model(options, options.dtype, source)
    sizes = model.default_profile(options.batch, options.sequence, options.max_sequence)
    points, whole = (_entry_points(model, options, sizes, kind) for kind in (options.window_caches, "whole"))
    report = weights = None
    dequantised: dict[str, int] = {}
    packed: dict[str, Any] = {}
    if source.weights is not None:
        weights = weights_of(model, source.weights)
        wanted = stored_specs(model, source.weights)
        tied = tied_keys(model, source.weights)
        report = audit(source.weights, wanted, tied=tied, ignorable=unused_keys(model, source.weights))
        if isinstance(weights, PackedWeights):
            packed = _packed(model, weights, progress)
            dequantised = _dequantised(weights, [path for path, _ in model.named_parameters()], progress)
        else:
            dequantised = _dequantised(source.weights, report.used, progress)
    kernels = None if options.kernels == "none" else ChosenKernels(options.target)
    offered = points if kernels is None else kernels.of(points)
    export = Export(options, model, sizes, offered, points, weights, report, meter, progress)
    export.kernels = kernels
    export.source, export.dequantised, export.packed = source.facts, dequantised, packed
    export.caches = {"bytes": _cache_bytes(points), "bytes_if_whole": _cache_bytes(whole)}
    return export


def exact_entry_points(export: Export, source: ModelSource) -> tuple[EntryPoint, ...]:
    """Returns the entry points in f32, on weights that are not packed."""
    options = dataclasses.replace(export.options, quantize="none")
    model = _model(options, "f32", source)
    return _entry_points(model, options, export.sizes, options.window_caches)


def exact_weights(weights: WeightSource) -> WeightSource:
    """Returns a bundle's weights for ``exact_entry_points``."""
    return DequantizedWeights(weights) if isinstance(weights, PackedWeights) else weights


def _model(options: ExportOptions, dtype: str, source: ModelSource) -> Model[Any]:
    weights = source.weights
    quantize = None if options.quantize == STORED else options.encoding
    model = load_model(
        source.directory,
        dtype,
        options.num_layers,
        weights=weights is not None,
        quantize=quantize,
        activations=options.activations,
    )
    if options.quantize == STORED and weights is not None:
        keep_packed(model, stored_encodings(model, weights), model.dtype, options.activations)
    return model


def _entry_points(
    model: Model[Any], options: ExportOptions, sizes: CompileProfile, caches: str
) -> tuple[EntryPoint, ...]:
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
    """Returns the bytes of the caches and states of one session: every entry point has the same."""
    return max(sum(a.spec.nbytes for a in point.arguments if a.alias_result is not None) for point in points)


def _dequantised(source: WeightSource, keys: Iterable[str], progress: Progress) -> dict[str, int]:
    """Counts the tensors that are packed in a checkpoint and not in the bundle, per encoding, and says so."""
    encodings = Counter(filter(None, map(source.encoding, keys)))
    if encodings:
        advice = "" if isinstance(source, PackedWeights) else _advice(encodings)
        progress(
            ProgressEvent(
                f"packed weights ({_counts(encodings)} tensors) are dequantised: the bundle holds them unpacked{advice}"
            )
        )
    return dict(encodings)


def _packed(model: Model[Any], weights: PackedWeights, progress: Progress) -> dict[str, Any]:
    """Counts the bundle's packed weights and what became of the checkpoint's encodings, and reports both."""
    parameters = dict(model.named_parameters())
    packed = {path: parameter for path, parameter in parameters.items() if parameter.encoding is not None}
    kinds = Counter(parameter.encoding.name for parameter in packed.values() if parameter.encoding is not None)
    kept = [path for path in packed if weights.kept(path)]
    other = Counter(kind for path in packed if path not in kept and (kind := weights.stored_encoding(path)) is not None)
    plain = {
        path: parameter.spec
        for path, parameter in parameters.items()
        if parameter.encoding is None and parameter.spec.ndim > 1
    }
    facts = {
        "matrices": len(packed),
        "encodings": dict(kinds),
        "kept": len(kept),
        "requantised": dict(other),
        "bytes": sum(parameter.stored_spec.nbytes for parameter in packed.values()),
        "unpacked": len(plain),
        "unpacked_bytes": sum(spec.nbytes for spec in plain.values()),
        "unpacked_parameters": list(dict.fromkeys(_NUMBER.sub(".*.", path) for path in plain)),
    }
    names = _counts(kinds) if len(kinds) > 1 else next(iter(kinds))
    progress(
        ProgressEvent(f"{len(packed)} matrices are packed as {names}, {len(kept)} of them byte for byte as stored")
    )
    if other:
        told = f"{_counts(other)} matrices are packed otherwise in the checkpoint, and quantised a second time"
        progress(ProgressEvent(told + _advice(other)))
    if plain:
        size = facts["unpacked_bytes"] / _MIB
        names = ", ".join(facts["unpacked_parameters"])
        progress(
            ProgressEvent(f"{len(plain)} other weights of two axes and more ({size:.1f} MiB) stay unpacked: {names}")
        )
    return facts


def _advice(encodings: Counter[str]) -> str:
    """Returns advice on keeping packed weights, where they can be kept."""
    kept = sorted(ENCODINGS.keys() & encodings)
    return f"; quantize={STORED} keeps those of {', '.join(kept)} packed" if kept else ""


def _counts(encodings: Counter[str]) -> str:
    return ", ".join(f"{count} {kind}" for kind, count in encodings.most_common())
