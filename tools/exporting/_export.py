"""The export: a checkpoint in, a verified bundle out."""

import dataclasses
import errno
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from compile_hlo import LoweredModule, lower_module
from compile_hlo.archive import ArchiveEntry, NonFinite, Pieces, WrittenArchive, archive_layout, write_archive
from compile_hlo.bundle import (
    ARCHIVE,
    MARK,
    MODULE,
    SCOPE,
    Bundle,
    KernelConfig,
    PhaseMeter,
    check_output,
    entry_point_config,
    executable_name,
    kernel_record,
    staged,
)
from compile_hlo.directions import check_declared
from compile_hlo.emit import ExternalParameters, Form, InlineParameters
from compile_hlo.iree import compile_module, target_named
from compile_hlo.portable import verify_text
from lang_core import CheckpointError, CompileError, EntryPoint, TensorSpec, VerificationError, WeightSource
from tools.cli import ByteProgress, say
from tools.exporting._options import ExportOptions, check_options
from tools.exporting._report import copy_report, hashes_of, producer, write_report
from tools.exporting._source import ModelSource, open_source
from tools.exporting._verify import References, check_devices, check_interpreter, devices_of, write_portable
from tools.inspecting import write_graphs
from tools.text import TOKENIZER_FILES
from transformer_core import RopeScaling
from transformer_core.checkpoints import IGNORABLE, Audit, audit
from transformer_core.models import DecoderLM, entry_points, load_config, stored_specs, weights_of

# Positions that caches hold where nobody says how many, if the model was trained on as many.
DEFAULT_CAPACITY: Final = 2048

_ROOM_FOR_MODULE: Final = 2**20

# What a bundle takes over from the model's directory, where it is there.
BUNDLED_FILES: Final = ("config.json", "generation_config.json", *TOKENIZER_FILES)


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
        archive: what was written of the weights; its hash is made while other things go on.
        predicted_bytes: of the archive, before it was written.
        nonfinite: NaNs and infinities per parameter.
        targets: for kernel_config.json.
        verification: for the report.
        hashes: sha256 per file, once the description is written.
    """

    options: ExportOptions
    model: DecoderLM
    entry_points: tuple[EntryPoint, ...]
    weights: WeightSource | None
    audit: Audit | None
    meter: PhaseMeter
    lowered: LoweredModule = dataclasses.field(default_factory=LoweredModule)
    archive: WrittenArchive | None = None
    predicted_bytes: int = 0
    nonfinite: dict[str, Any] = dataclasses.field(default_factory=dict)
    targets: dict[str, dict[str, Any]] = dataclasses.field(default_factory=dict)
    verification: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    hashes: dict[str, str] = dataclasses.field(default_factory=dict)


def run_export(options: ExportOptions, model_path: Path, meter: PhaseMeter) -> None:
    """Exports a model; afterwards ``options.output`` is a bundle, or what it was before.

    Raises:
        InputError: the model, the sizes or the output directory are wrong.
        CompileError: a target's compiler refuses the module.
        VerificationError: the bundle does not compute what the model does.
    """
    check_options(options)
    check_output(options.output)
    with open_source(options.model, model_path, options.weights != "none") as source:
        with meter.phase("load"):
            export = load(options, source, meter)
        with staged(options.output) as staging:
            _fill(export, dataclasses.replace(source, weights=export.weights), staging)
    if options.report is not None:
        copy_report(options.output, options.report)


def _fill(export: Export, source: ModelSource, staging: Path) -> None:
    meter = export.meter
    with meter.phase("lower"):
        _lower(export, source, staging)
    with meter.phase("parameters"):
        _write_parameters(export, source, staging)
    with meter.phase("compile"):
        _compile(export, staging)
    _copy_files(source, staging)
    with meter.phase("verify"):
        _verify_text(export, staging)
    _write_config(export, staging)
    with meter.phase("verify"):
        _verify_results(export, source, staging)
    write_report(export, staging)


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
        tied = {"lm_head.weight": "model.embed_tokens.weight"} if config.tied else {}
        beyond = [f"model.layers.{i}.*" for i in range(model.config.layers, config.layers + config.extra_layers)]
        found = audit(source.weights, wanted, tied=tied, ignorable=[*IGNORABLE, *beyond])
    return Export(options, model, points, weights, found, meter)


def _lower(export: Export, source: ModelSource, staging: Path) -> None:
    with (staging / MODULE).open("w") as text:
        form, streaming = _form(export, source.weights), export.options.lowering == "streaming"
        export.lowered = lower_module(export.entry_points, text.write, form, streaming=streaming)
    for function in export.lowered.functions:
        check_declared(function.name, function.directions)


def _form(export: Export, weights: WeightSource | None) -> Form:
    if export.options.weights != "inline":
        return ExternalParameters(SCOPE)
    if weights is None:
        raise CheckpointError("--weights=inline needs the checkpoint's weights")

    pieces = Pieces(weights)

    def read(path: str, spec: TensorSpec) -> Iterator[np.ndarray]:
        nan = inf = 0
        for piece, found in pieces.read(ArchiveEntry(path, path, spec)):
            nan, inf = nan + found.nan, inf + found.inf
            yield piece
        if nan or inf:
            export.nonfinite[path] = NonFinite(nan, inf)._asdict()

    return InlineParameters(read)


def _write_parameters(export: Export, source: ModelSource, staging: Path) -> None:
    if source.weights is None:
        return
    if export.options.weights == "inline":
        _warn(export.nonfinite, source.weights)
        return
    entries = [ArchiveEntry(path, path, spec) for path, spec in export.lowered.parameters().items()]
    export.predicted_bytes = archive_layout(entries).total_bytes
    with ByteProgress("weights") as progress:
        written = write_archive(staging / ARCHIVE, entries, source.weights, progress=progress)
    export.nonfinite = {name: found._asdict() for name, found in written.nonfinite.items()}
    export.archive = written
    _warn(export.nonfinite, source.weights)


def _warn(nonfinite: Mapping[str, Mapping[str, int]], weights: WeightSource) -> None:
    for name, found in nonfinite.items():
        counts = ", ".join(f"{count} {kind}" for kind, count in found.items() if count)
        say(f"warning: parameter {name} in {weights.origin(name)} has {counts}: kept exactly as stored")


def _compile(export: Export, staging: Path) -> None:
    for name in export.options.targets:
        target = target_named(name)
        say(f"compiling for {name} ...")
        try:
            report = compile_module(staging / MODULE, staging / executable_name(name), target)
        except CompileError as error:
            if shutil.disk_usage(staging).free < _ROOM_FOR_MODULE:  # the compiler does not say so clearly
                raise OSError(errno.ENOSPC, str(error), str(staging / executable_name(name))) from error
            raise
        export.targets[name] = {
            "file": executable_name(name),
            "flags": list(target.flags),
            "devices": list(target.devices),
            "cpu": dataclasses.asdict(target.cpu) if target.cpu else None,
            "seconds": report.seconds,
            "compiler_peak_rss_bytes": report.peak_rss_bytes,
        }


def _copy_files(source: ModelSource, staging: Path) -> None:
    for name in BUNDLED_FILES:
        if (source.directory / name).is_file():
            shutil.copyfile(source.directory / name, staging / name)


def _write_config(export: Export, staging: Path) -> None:
    functions = zip(export.entry_points, export.lowered.functions, strict=True)
    described = [entry_point_config(e.name, e.arguments, f.results, f.directions) for e, f in functions]
    write_graphs(staging, described, export.options.graph)
    known = {} if export.archive is None else {ARCHIVE: export.archive.sha256}
    export.hashes = hashes_of(staging, known)
    KernelConfig(
        entry_points=described,
        parameters={
            path: {"dtype": spec.dtype.name, "shape": list(spec.shape)}
            for path, spec in export.lowered.parameters().items()
        },
        kernels=[kernel_record(kernel) for kernel in export.lowered.kernels],
        targets=export.targets,
        model=_model(export),
        producer=producer(),
        sha256=export.hashes,
    ).write(staging / MARK)


def _model(export: Export) -> dict[str, Any]:
    config, options = export.model.config, export.options
    rope = config.rope
    return {
        "family": config.architecture,
        "name": options.model,
        "dtype": options.dtype,
        "batch": options.batch,
        "sequence": options.sequence,
        "max_sequence": options.max_sequence,
        "vocabulary": config.vocabulary,
        "hidden": config.hidden,
        "intermediate": config.intermediate,
        "layers": config.layers,
        "heads": config.heads,
        "kv_heads": config.kv_heads,
        "head_size": config.head_size,
        "windows": list(config.windows),
        "tied": config.tied,
        "rope": {
            "layout": rope.mode.value,
            "base": rope.base,
            "rotated": rope.rotated,
            "trained_length": rope.trained_length,
            "scaling": {"type": _scaling_name(rope.scaling)}
            | (dataclasses.asdict(rope.scaling) if dataclasses.is_dataclass(rope.scaling) else {}),
        },
    }


def _scaling_name(scaling: RopeScaling) -> str:
    """As ``rope_type`` in config.json."""
    name = type(scaling).__name__.removesuffix("Scaling").lower()
    return "default" if name == "no" else name


def _verify_text(export: Export, staging: Path) -> None:
    if export.options.verify != "none":
        say("verifying ...")
        verify_text(staging / MODULE)
    write_portable(export.entry_points, export.lowered, staging)


def _verify_results(export: Export, source: ModelSource, staging: Path) -> None:
    options = export.options
    if options.verify in ("none", "parse") or source.weights is None:
        return
    references = References(export.entry_points, source.weights, export.model.config.vocabulary)
    if options.verify == "interpreter":
        export.verification = check_interpreter(export.entry_points, references, source.weights, options.dtype, staging)
        return
    work = sum(spec.size for spec in export.lowered.parameters().values()) * options.batch * options.sequence
    devices = devices_of(options.targets)
    export.verification = check_devices(Bundle(staging), references, options.dtype, devices, work)
    skipped = [f"{row['device']}: {row['skipped']}" for row in export.verification if "skipped" in row]
    for each in skipped:
        say(f"warning: not verified on {each}")
    if options.verify == "iree" and len(skipped) == len(export.verification):
        raise VerificationError(f"--verify=iree: no device could run the bundle ({'; '.join(skipped)})")
