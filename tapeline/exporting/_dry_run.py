"""Prediction of an export that writes nothing."""

import json
from pathlib import Path
from typing import Any

from lang_core import InputError
from tapeline.analysis.planning import plan_text, read_hardware
from tapeline.bundle import PhaseMeter, check_output
from tapeline.cli import Progress, no_progress, size_text
from tapeline.exporting._adapters import with_adapters
from tapeline.exporting._budget import check_budget
from tapeline.exporting._device_plan import device_plan
from tapeline.exporting._load import load
from tapeline.exporting._option_checks import check_options
from tapeline.exporting._options import ExportOptions
from tapeline.exporting._predict import predict
from tapeline.exporting._replacing import check_replaced
from tapeline.exporting._source import open_source
from tapeline.quantizing import AUTO


def dry_run(
    options: ExportOptions,
    model_path: Path,
    meter: PhaseMeter,
    progress: Progress = no_progress,
    base: Path = Path(),
    hardware: str | None = None,
) -> dict[str, Any]:
    """Predicts an export: reads headers, records the model, and writes nothing.

    Args:
        options: options of the export.
        model_path: the model as a path.
        meter: measures the phases.
        progress: receives warnings.
        base: directory that relative paths of adapters and of ``hardware`` start from.
        hardware: name of a preset or a TOML file with the figures of a device; None omits times.

    Returns:
        Nodes, parameters, bytes per file, peak of memory per phase, disk; with a mesh or hardware ``devices`` too:
        bytes, exchanges and least times on each device.

    Raises:
        InputError: the export itself would fail before it writes.
    """
    check_options(options)
    if options.budget is not None:
        raise InputError(f"quantize={AUTO} measures weights, and `dry_run` reads none: predict with one encoding")
    check_output(options.output)
    figures = None if hardware is None else read_hardware(hardware, base)
    with_weights = options.weights != "none"
    with (
        open_source(options.model, model_path, with_weights, progress, headers_only=True) as opened,
        with_adapters(opened, options.adapter, base, progress) as source,
        meter.phase("load"),
    ):
        export = load(options, source, meter, progress)
        check_replaced(export, model_path)
        prediction = predict(export, source)
        devices = None if figures is None and options.mesh is None else device_plan(export, figures)
    check_budget(export.options, prediction, meter)
    specs = [spec for _, spec in prediction.lowered.parameters().items()]
    counts = {"count": len(specs), "bytes": sum(spec.nbytes for spec in specs)}
    told = {"parameters": counts, **prediction.as_json()}
    return told if devices is None else told | {"devices": devices.as_json()}


def prediction_text(prediction: dict[str, Any]) -> str:
    """The prediction for a person."""
    nodes, parameters, guessed = prediction["nodes"], prediction["parameters"], prediction["estimated"]
    own, child = prediction["peak_anonymous_bytes"], prediction["peak_child_rss_bytes"]
    lines = [
        f"nodes: {nodes['recorded']} recorded, {nodes['pruned']} pruned, {nodes['emitted']} emitted",
        f"parameters: {parameters['count']}, {size_text(parameters['bytes'])}",
        *_caches(prediction["caches"]),
        *(f"{n}: {'about ' if n in guessed else ''}{size_text(size)}" for n, size in prediction["files"].items()),
        f"disk: {size_text(prediction['disk_bytes'])}",
        *(f"peak memory, {phase}: {size_text(size)}{_beside(child.get(phase))}" for phase, size in own.items()),
        *([plan_text(prediction["devices"])] if "devices" in prediction else []),
    ]
    return "\n".join(lines)


def _caches(caches: dict[str, int]) -> list[str]:
    size, whole = caches["bytes"], caches["bytes_if_whole"]
    saved = f", {size_text(whole - size)} less than whole caches" if whole > size else ""
    return [f"caches: {size_text(size)}{saved}"] if size else []


def _beside(child: int | None) -> str:
    return f", and {size_text(child)} in a process of its own" if child else ""


def write_prediction(prediction: dict[str, Any], path: Path) -> None:
    """Writes the prediction as JSON."""
    path.write_text(json.dumps({"predicted": prediction}, indent=2) + "\n")
