"""State of an export: the model that is asked for, and the results so far."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from compile_hlo import LoweredModule
from lang_core import CheckpointError, EntryPoint, InputError, WeightSource, any_of, quantizable
from tapeline.bundle import DebugConfig, PhaseMeter, TextSettings
from tapeline.cli import Progress, ProgressEvent
from tapeline.exporting._adapter_tables import describe_tables
from tapeline.exporting._kernels import ChosenKernels
from tapeline.exporting._mesh import ExportMesh, export_mesh
from tapeline.exporting._options import ExportOptions, checked_entry_points
from tapeline.exporting._packing import PackingFacts, packing_facts
from tapeline.exporting._source import ModelSource
from tapeline.quantizing import AUTO
from tapeline.runners import Invariance
from tapeline.text import find_tokenizer
from transformer_core import DRAFT, STORED, keep_packed
from transformer_core.checkpoints import Audit, DequantizedWeights, PackedWeights, audit
from transformer_core.flow import CompileProfile
from transformer_core.models import (
    SLOT_TOKENS,
    Model,
    check_quantization,
    entry_points,
    load_model,
    misspelt_fields,
    stored_encodings,
    stored_specs,
    tied_keys,
    unused_keys,
    weights_of,
)
from transformer_core.sharding import divide_experts


@dataclass(slots=True)
class Export:
    """State of an export.

    Attributes:
        options: options of the export.
        model: the modules.
        sizes: sizes that were asked for, and defaults for the others.
        entry_points: entry points of the bundle, with kernels in them if they were asked for.
        written: the same entry points without kernels; results are compared with theirs.
        weights: checkpoint under the model's names; None without weights.
        audit: the checkpoint's keys; None without weights.
        meter: costs of the phases.
        progress: receives steps and warnings.
        lowered: the functions.
        nonfinite: NaNs and infinities per parameter.
        targets: for kernel_config.json.
        verification: for the report.
        hashes: sha256 per file, once the description is written.
        left_out: per file that the bundle lacks, why, for the report.
        packing: counts and bytes of packed weights and of those that are unpacked, for the report.
        source: the form of the model's files, for kernel_config.json.
        caches: bytes of caches and states, and their bytes without rings.
        kernels: configurations of the calls of kernels; None without kernels.
        invariance: by target, calls among which verification found the bits of a token the same.
        mesh: axes of the tensors; None without a mesh.
        lengths: T of the entry points of shorter texts, ascending; empty if there is one length only.
        packed: T of the entry points of packed texts.
        adapters: tables of the adapters that requests may choose, for kernel_config.json; None without.
        settings: options that decide the bundle's contents, for the report.
        place: digest of the model's path on this machine, for the report; None if it has none.
        debug: description of the debug module, for kernel_config.json; None if there is none.
        losses: measured losses of chosen encodings, for the report; None if none were chosen.
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
    left_out: dict[str, str] = dataclasses.field(default_factory=dict)
    source: dict[str, Any] = dataclasses.field(default_factory=dict)
    packing: PackingFacts = dataclasses.field(default_factory=PackingFacts)
    invariance: dict[str, Invariance] = dataclasses.field(default_factory=dict)
    debug: DebugConfig | None = None
    losses: dict[str, Any] | None = None
    caches: dict[str, int] = dataclasses.field(default_factory=dict)
    kernels: ChosenKernels | None = None
    mesh: ExportMesh | None = None
    lengths: tuple[int, ...] = ()
    packed: tuple[int, ...] = ()
    adapters: dict[str, Any] | None = None
    settings: dict[str, Any] = dataclasses.field(default_factory=dict)
    place: str | None = None

    @property
    def vocabulary(self) -> int:
        """Size of the vocabulary, V; 0 for a model without token inputs."""
        return self.model.config.facts().get("vocabulary", 0)


def load(options: ExportOptions, source: ModelSource, meter: PhaseMeter, progress: Progress) -> Export:
    """Reads the configuration, makes the modules and checks the checkpoint's keys, without reading weights.

    Raises:
        InputError: configuration, checkpoint and sizes do not fit each other.
    """
    model, options = _model(options, options.dtype, source)
    for note in misspelt_fields(source.directory, weights=source.weights is not None):
        progress(ProgressEvent(f"warning: {note}"))
    lengths = _lengths(model, options, source)
    sizes = _sizes(model, options if not lengths else dataclasses.replace(options, sequence=lengths[-1]))
    if options.mesh_shape is not None:
        divide_experts(model, options.mesh_shape)
    shorter = lengths[:-1], _packed_lengths(model, options, lengths)
    plain = dataclasses.replace(options, kv_cache=None)
    points = _entry_points(model, options, sizes, options.cache_form, *shorter)
    whole = _entry_points(model, plain, sizes, "whole", *shorter)
    mesh = export_mesh(options.mesh_shape, model, points, sizes.batch, progress)
    report = weights = None
    facts = PackingFacts()
    if source.weights is not None:
        ready = {} if source.plan is None else source.plan.packed
        weights = weights_of(model, source.weights, source.adapters, ready)
        wanted = stored_specs(model, source.weights)
        tied = tied_keys(model, source.weights)
        report = audit(source.weights, wanted, tied=tied, ignorable=unused_keys(model, source.weights))
        facts = packing_facts(model, weights, progress)
    kernels = None if options.kernels == "none" else ChosenKernels(options.compiled)
    offered = points if kernels is None else kernels.of(points)
    _check_tokenizer(source, model, progress)
    export = Export(options, model, sizes, offered, points, weights, report, meter, progress)
    export.kernels, export.mesh = kernels, mesh
    export.lengths, export.packed = shorter
    if options.adapters is not None and source.weights is not None:
        export.adapters = describe_tables(model, source.weights, options.adapters, options.adapter_rank)
    export.source, export.packing = source.facts, facts
    export.losses = None if source.plan is None else source.plan.facts
    export.caches = {"bytes": _cache_bytes(points), "bytes_if_whole": _cache_bytes(whole)}
    return export


def _lengths(model: Model[Any], options: ExportOptions, source: ModelSource) -> tuple[int, ...]:
    """Returns the lengths of texts that ``forward`` is made for, ascending; none if the options name one."""
    only_forward = options.entry_points is None or tuple(options.entry_points) == ("forward",)
    if options.sequence is not None or options.slots is not None or not only_forward:
        return ()
    return model.text_lengths(TextSettings.read(source.directory).max_tokens)


def _packed_lengths(model: Model[Any], options: ExportOptions, lengths: tuple[int, ...]) -> tuple[int, ...]:
    """Returns the lengths of rows of several texts; none if the options name sizes."""
    if not lengths or options.batch != 1 or options.mesh_shape is not None:
        return ()
    return model.packed_lengths(lengths[-1])


def _check_tokenizer(source: ModelSource, model: Model[Any], progress: Progress) -> None:
    """Checks that a bundle can read the tokenizer's files; warns if a model without token inputs has other files.

    Raises:
        InputError: the files are damaged, or of a format that is not read.
    """
    try:
        tokenizer = find_tokenizer(source.directory)
    except CheckpointError as error:
        if not model.config.facts().get("vocabulary"):
            progress(ProgressEvent(f"warning: {error}"))
            return
        raise CheckpointError(f"{error}; or move the tokenizer's files away, and export without them") from error
    for note in tokenizer.notes if tokenizer is not None else ():
        progress(ProgressEvent(f"warning: {note}"))


def _sizes(model: Model[Any], options: ExportOptions) -> CompileProfile:
    if options.slots is None or options.sequence is not None:
        return model.default_profile(options.batch, options.sequence, options.max_sequence)
    capacity = model.default_profile(1, 1, options.max_sequence).capacity
    return model.default_profile(1, min(SLOT_TOKENS, capacity), capacity)


def entry_points_of(export: Export, batch: int) -> tuple[EntryPoint, ...]:
    """Returns the entry points for another number of sequences, without kernels."""
    sizes = dataclasses.replace(export.sizes, batch=batch)
    return _entry_points(export.model, export.options, sizes, export.options.cache_form, export.lengths, export.packed)


def exact_entry_points(export: Export, source: ModelSource) -> tuple[EntryPoint, ...]:
    """Returns the entry points in f32, on weights and caches that are not packed."""
    options = dataclasses.replace(export.options, quantize="none", kv_cache=None)
    model, _ = _model(options, "f32", source)
    return _entry_points(model, options, export.sizes, options.cache_form, export.lengths, export.packed)


def reference_entry_points(
    export: Export, source: ModelSource, names: Sequence[str], batch: int, sequence: int, max_sequence: int | None
) -> tuple[EntryPoint, ...]:
    """Returns entry points of other names and sizes in f32, on weights that are not packed."""
    options = dataclasses.replace(
        export.options, quantize="none", kv_cache=None, slots=None, pages=None, entry_points=None
    )
    model, _ = _model(options, "f32", source)
    return entry_points(
        model,
        names=names,
        batch=batch,
        sequence=sequence,
        max_sequence=max_sequence,
        window_caches=options.cache_form,
    )


def one_pass(export: Export, source: ModelSource, *, exact: bool = False) -> EntryPoint | None:
    """Returns a prefill of twice as many tokens, or as many as caches hold, if RoPE depends on the length; else None.

    Args:
        export: the export.
        source: model's files.
        exact: True for one in f32, on weights that are not packed.
    """
    prefill = next((point for point in export.entry_points if point.name == "prefill"), None)
    names = [] if prefill is None else [argument.name for argument in prefill.arguments]
    tokens = min(2 * export.sizes.sequence, export.sizes.capacity)
    repeats = tokens < 2 * export.sizes.sequence and any(name.endswith("_state") for name in names)
    if "length" not in names or tokens == export.sizes.sequence or repeats:
        return None
    options, model = export.options, export.model
    if exact:
        options = dataclasses.replace(options, quantize="none", kv_cache=None)
        model, _ = _model(options, "f32", source)
    options = dataclasses.replace(options, entry_points=("prefill",), verify_tokens=None)
    return _entry_points(model, options, dataclasses.replace(export.sizes, sequence=tokens), "whole")[0]


def exact_weights(weights: WeightSource) -> WeightSource:
    """Returns a bundle's weights for ``exact_entry_points``."""
    return DequantizedWeights(weights) if isinstance(weights, PackedWeights) else weights


def _model(options: ExportOptions, dtype: str, source: ModelSource) -> tuple[Model[Any], ExportOptions]:
    """Returns the modules, and the options with the encoding that the file decides if none is asked for.

    Encodings that were chosen by loss are those of a file afterwards: each matrix has its own.
    """
    stored, activations = options.quantize in (None, STORED, AUTO), options.activations
    check_quantization(source.directory)  # without weights, too: a bundle takes them from the checkpoint later
    model = load_model(
        source.directory,
        dtype,
        options.num_layers,
        weights=source.weights is not None,
        quantize=None if stored else options.encoding,
        activations=activations,
        drafts=DRAFT in (options.entry_points or ()),
        adapters=source.adapters,
    )
    if options.quantize == STORED and source.header is None:
        raise InputError(
            f"quantize={STORED} leaves matrices as the checkpoint has them, and weights=none reads no checkpoint: "
            f"choose quantize={any_of(quantizable())}"
        )
    if options.budget is not None:
        assert source.plan is not None
        keep_packed(model, source.plan.encodings, model.dtype, activations)
        return model, dataclasses.replace(options, quantize=STORED, target_bpw=None, max_loss=None, calibration=None)
    if not stored:
        return model, options
    kept = False
    if source.header is not None:
        encodings = stored_encodings(model, source.header, source.adapters)
        kept = keep_packed(model, encodings, model.dtype, activations, required=options.quantize == STORED)
    return model, dataclasses.replace(options, quantize=STORED if kept else "none")


def _entry_points(
    model: Model[Any],
    options: ExportOptions,
    sizes: CompileProfile,
    caches: str,
    lengths: tuple[int, ...] = (),
    packed: tuple[int, ...] = (),
) -> tuple[EntryPoint, ...]:
    if options.slots is not None:
        points = entry_points(
            model,
            sequence=sizes.sequence,
            max_sequence=sizes.max_sequence,
            window_caches=caches,
            verify_tokens=options.verify_tokens,
            slots=options.slots,
            pages=options.paging,
            kv_cache=options.kv_cache,
            adapter_rank=None if options.adapters is None else options.adapter_rank,
        )
        if options.positions == "per_row":
            _check_one_rope(model, options.slots)
        return points
    return entry_points(
        model,
        names=checked_entry_points(options.entry_points, model),
        batch=sizes.batch,
        sequence=sizes.sequence,
        max_sequence=sizes.max_sequence,
        window_caches=caches,
        verify_tokens=options.verify_tokens,
        kv_cache=options.kv_cache,
        lengths=lengths,
        packed=packed,
    )


def _check_one_rope(model: Model[Any], slots: int) -> None:
    """Refuses ``positions=per_row``, which gave each sequence the RoPE of its length, if slots would change it."""
    (decode,) = entry_points(model, names=("decode",))
    if any(argument.name == "length" for argument in decode.arguments):
        raise InputError(
            f"positions=per_row is an older spelling of slots={slots}. RoPE of {model.config.architecture} depends on "
            f"the length of a sequence, and with slots it is that of max_sequence: give slots={slots} to have that, "
            f"or leave out positions and batch, and several prompts run in turn"
        )


def _cache_bytes(points: tuple[EntryPoint, ...]) -> int:
    """Returns the bytes of the caches and states of one session: every entry point has the same."""
    return max(sum(a.spec.nbytes for a in point.arguments if a.alias_result is not None) for point in points)
