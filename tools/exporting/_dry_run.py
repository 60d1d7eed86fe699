"""``--dry_run``: what an export would do, found out without writing anything."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np

from compile_hlo import lower_module
from compile_hlo.archive import ArchiveEntry, archive_layout
from compile_hlo.bundle import ARCHIVE, ARTIFACT, MODULE, SCOPE, PhaseMeter, check_output, executable_name
from compile_hlo.emit import ExternalParameters, Form, InlineParameters
from lang_core import TensorSpec, bool_
from tools.cli import size_text
from tools.exporting._export import BUNDLED_FILES, Export, load
from tools.exporting._options import ExportOptions, check_options
from tools.exporting._source import open_source

# Buffers of the archive's writer; measured 1 to 4 MiB (docs/benchmarks.md).
_ARCHIVE_BUFFERS: Final = 8 << 20


def dry_run(options: ExportOptions, model_path: Path, meter: PhaseMeter) -> dict[str, Any]:
    """Predicts an export: reads headers, records the model, and writes nothing.

    Returns:
        Nodes, parameters, bytes per file, peak of anonymous memory per phase, disk; and what is not predicted.

    Raises:
        InputError: what the export itself would refuse before it writes.
    """
    check_options(options)
    check_output(options.output)
    with open_source(options.model, model_path, options.weights != "none") as source:
        export = load(options, source, meter)
        with meter.phase("lower"):
            module_bytes = _lower(export)
        files = {MODULE: module_bytes}
        entries = [ArchiveEntry(path, path, spec) for path, spec in export.lowered.parameters().items()]
        if options.weights == "external":
            files[ARCHIVE] = archive_layout(entries).total_bytes
        for name in BUNDLED_FILES:
            if (source.directory / name).is_file():
                files[name] = (source.directory / name).stat().st_size
    unknown = [executable_name(target) for target in options.targets]
    functions = export.lowered.functions
    return {
        "nodes": {
            "recorded": sum(function.nodes_recorded for function in functions),
            "pruned": sum(function.nodes_pruned for function in functions),
            "emitted": sum(function.nodes_emitted for function in functions),
        },
        "parameters": {"count": len(entries), "bytes": sum(entry.spec.nbytes for entry in entries)},
        "files": files,
        "disk_bytes": sum(files.values()),
        "peak_anonymous_bytes": {
            "lower": meter.phases["lower"].anonymous_delta_bytes,
            "parameters": _ARCHIVE_BUFFERS if options.weights == "external" else 0,
        },
        "not_predicted": [ARTIFACT, *unknown, "memory of the compiler and of verification"],
    }


def _lower(export: Export) -> int:
    """Lowers into nothing; the bytes that the module's text would have."""
    written = 0

    def write(text: str) -> None:
        nonlocal written
        written += len(text.encode())

    def no_data(path: str, spec: TensorSpec) -> Iterator[np.ndarray]:
        nonlocal written
        if spec.dtype is bool_ or not spec.size:  # these are spelled out
            yield np.zeros(spec.shape, spec.dtype.numpy)
        else:
            written += 2 * spec.nbytes  # in hexadecimal

    form: Form = InlineParameters(no_data) if export.options.weights == "inline" else ExternalParameters(SCOPE)
    export.lowered = lower_module(export.entry_points, write, form, streaming=True)
    return written


def prediction_text(prediction: dict[str, Any]) -> str:
    """The prediction for a person."""
    nodes, parameters = prediction["nodes"], prediction["parameters"]
    lines = [
        f"nodes: {nodes['recorded']} recorded, {nodes['pruned']} pruned, {nodes['emitted']} emitted",
        f"parameters: {parameters['count']}, {size_text(parameters['bytes'])}",
        *(f"{name}: {size_text(size)}" for name, size in prediction["files"].items()),
        f"disk: {size_text(prediction['disk_bytes'])}",
        *(f"peak memory, {phase}: {size_text(size)}" for phase, size in prediction["peak_anonymous_bytes"].items()),
        f"not predicted: {', '.join(prediction['not_predicted'])}",
    ]
    return "\n".join(lines)


def write_prediction(prediction: dict[str, Any], path: Path) -> None:
    """Writes the prediction as JSON."""
    path.write_text(json.dumps({"predicted": prediction}, indent=2) + "\n")
