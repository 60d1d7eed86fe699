"""``report.json``: what an export did and what it cost."""

import dataclasses
import importlib.metadata
import json
import platform
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from compile_hlo.bundle import ARCHIVE, MARK, REPORT, sha256_of
from lang_core import InputError

if TYPE_CHECKING:
    from tools.exporting._export import Export

VERSION: Final = "0.1.0"


def hashes_of(directory: Path, known: dict[str, str]) -> dict[str, str]:
    """The sha256 of every file but the description and the report; ``known`` ones are not computed again."""
    names = sorted(path.name for path in directory.iterdir() if path.name not in (MARK, REPORT))
    return {name: known.get(name) or sha256_of(directory / name) for name in names}


def producer() -> dict[str, str]:
    """The versions of what made a bundle."""
    packages = ("numpy", "ml_dtypes", "iree-base-compiler", "iree-base-runtime", "jaxlib")
    found = {name: importlib.metadata.version(name) for name in packages}
    return {"tapeline": VERSION, "python": platform.python_version(), **found}


def write_report(export: "Export", staging: Path) -> None:
    """Writes the report into the bundle."""
    (staging / REPORT).write_text(json.dumps(_report(export, staging), indent=2) + "\n")


def copy_report(bundle: Path, copy: Path) -> None:
    """Writes the report once more, where the user wants it.

    Raises:
        InputError: the file cannot be written; the bundle stands all the same.
    """
    try:
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes((bundle / REPORT).read_bytes())
    except OSError as error:
        raise InputError(
            f"--report {copy}: cannot be written ({error.strerror}); {bundle} is complete and has it as {REPORT}"
        ) from error


def _report(export: "Export", staging: Path) -> dict[str, Any]:
    options, lowered = export.options, export.lowered
    audit = export.audit
    phases = {name: dataclasses.asdict(cost) for name, cost in export.meter.phases.items()}
    archive = staging / ARCHIVE
    return {
        "lowering": options.lowering,
        "model": {"name": options.model, "family": export.model.config.architecture, "dtype": options.dtype},
        "import_rss_bytes": export.meter.base.rss,
        "phases": phases,
        "nodes": {
            "recorded": sum(function.nodes_recorded for function in lowered.functions),
            "pruned": sum(function.nodes_pruned for function in lowered.functions),
            "emitted": sum(function.nodes_emitted for function in lowered.functions),
        },
        "parameters": {
            "used": list(audit.used) if audit else list(lowered.parameters()),
            "tied": list(audit.tied) if audit else [],
            "ignored": list(audit.ignored) if audit else [],
            "missing": list(audit.missing) if audit else [],
            "bytes": sum(spec.nbytes for spec in lowered.parameters().values()),
            "nonfinite": export.nonfinite,
        },
        "predicted": {ARCHIVE: export.predicted_bytes},
        "actual": {ARCHIVE: archive.stat().st_size if archive.exists() else 0},
        "hashes": export.hashes,
        "verification": export.verification,
    }
