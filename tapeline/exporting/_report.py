"""``report.json``: the steps of an export and their cost."""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from lang_core import LARGE_JSON_BOUNDS, InputError, read_json
from tapeline.bundle import MARK, REPORT, Steps, sha256_of
from tapeline.exporting._load import Export
from tapeline.exporting._predict import Prediction, node_counts

# Facts of a compilation that the report has.
_COMPILED: Final = ("compile", "flags", "schedule", "seconds", "compiler_peak_rss_bytes", "tuning")


def hashes_of(directory: Path, copied: Sequence[str], known: Mapping[str, str]) -> dict[str, str]:
    """The sha256 of every file but the description and the report: of files that were copied, and of steps."""
    hashes = {name: sha256_of(directory / name) for name in copied} | dict(known)
    return dict(sorted(hashes.items()))


def write_report(export: Export, staging: Path, prediction: Prediction, steps: Steps) -> None:
    """Writes the report into the bundle."""
    (staging / REPORT).write_text(json.dumps(_report(export, staging, prediction, steps), indent=2) + "\n")


def report_summary(bundle: Path) -> dict[str, Any]:
    """Returns a summary of a bundle's report, as JSON values.

    Returns:
        ``model``; ``seconds`` and ``anonymous_bytes`` (above imports, at the peak) per phase; ``nodes``; ``parameters``
        with the number of those used, ignored and missing, and their ``bytes``; ``disk_bytes``; ``verification``.
    """
    report = read_json(bundle / REPORT, "export the bundle again", LARGE_JSON_BOUNDS, error=InputError, nonfinite=True)
    parameters = report["parameters"]
    return {
        "model": report["model"],
        "seconds": {name: phase["seconds"] for name, phase in report["phases"].items()},
        "anonymous_bytes": {name: phase["anonymous_delta_bytes"] for name, phase in report["phases"].items()},
        "nodes": report["nodes"],
        "parameters": {name: len(parameters[name]) for name in ("used", "ignored", "missing")}
        | {"bytes": parameters["bytes"]},
        "disk_bytes": report["actual"]["disk_bytes"],
        "verification": report["verification"],
    }


def copy_report(bundle: Path, copy: Path) -> None:
    """Writes the report once more, if the user wants it.

    Raises:
        InputError: the file cannot be written; the bundle stands all the same.
    """
    try:
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes((bundle / REPORT).read_bytes())
    except OSError as error:
        raise InputError(
            f"report={copy}: cannot be written ({error.strerror}); {bundle} is complete and has it as {REPORT}"
        ) from error


def _report(export: Export, staging: Path, prediction: Prediction, steps: Steps) -> dict[str, Any]:
    options, lowered, targets = export.options, export.lowered, export.targets
    audit = export.audit
    phases = {name: dataclasses.asdict(cost) for name, cost in export.meter.phases.items()}
    return {
        "lowering": options.lowering,
        "model": {
            "name": options.model,
            "family": export.model.config.architecture,
            "dtype": options.dtype,
            "source": export.source,
            "place": export.place,
        },
        "settings": export.settings,
        "import_rss_bytes": export.meter.base.rss,
        "phases": phases,
        "compiled": {
            name: {key: target[key] for key in _COMPILED if key in target} for name, target in targets.items()
        },
        "nodes": node_counts(lowered),
        "largest_stretch": dataclasses.asdict(
            max((function.largest_stretch for function in lowered.functions), key=lambda stretch: stretch.nodes)
        ),
        "parameters": {
            "used": list(audit.used) if audit else list(lowered.parameters()),
            "tied": list(audit.tied) if audit else [],
            "ignored": list(audit.ignored) if audit else [],
            "missing": list(audit.missing) if audit else [],
            "bytes": sum(spec.nbytes for spec in lowered.parameters().values()),
            "nonfinite": export.nonfinite,
            **dataclasses.asdict(export.packing),
        },
        **({} if export.losses is None else {"losses": export.losses}),
        "caches": export.caches,
        **({} if export.mesh is None else {"mesh": export.mesh.facts()}),
        "predicted": prediction.as_json(),
        "actual": _actual(export, staging),
        "steps": steps.as_json(),
        "hashes": export.hashes,
        "left_out": export.left_out,
        "verification": export.verification,
    }


def _actual(export: Export, staging: Path) -> dict[str, Any]:
    """Returns the actual figures in the form of the prediction. The report's own bytes are not known yet."""
    files = {name: (staging / name).stat().st_size for name in sorted({MARK, *export.hashes})}
    compilers = [target["compiler_peak_rss_bytes"] for target in export.targets.values()]
    return {
        "nodes": node_counts(export.lowered),
        "files": files,
        "disk_bytes": sum(files.values()),
        "peak_anonymous_bytes": {name: cost.anonymous_delta_bytes for name, cost in export.meter.phases.items()},
        "peak_child_rss_bytes": {"compile": max(compilers, default=0)},
    }
