"""Facts of a bundle as JSON values: description, files, parameters, verification."""

import dataclasses
import fnmatch
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from lang_core import LARGE_JSON_BOUNDS, InputError, TensorSpec, checked_choices, file_json, near_names
from tapeline.bundle import MARK, REPORT, Bundle, sha256_of, signature_fields

_LARGEST: Final = 10

# States of a file.
OK: Final = "ok"
DIFFERS: Final = "differs"
MISSING: Final = "missing"
UNCHECKED: Final = "not checked"
UNLISTED: Final = "not listed"


@checked_choices
def facts(bundle: Bundle, *, hashes: bool) -> dict[str, Any]:
    """Returns everything that is known of a bundle but its graph.

    Args:
        bundle: bundle to describe.
        hashes: whether to read all files and compare their SHA-256 with those of the export.

    Raises:
        InputError: a file cannot be read.
    """
    config = bundle.config
    report = _report(bundle.path)
    return {
        "bundle": str(bundle.path),
        "schema": config.schema,
        "producer": config.producer,
        "model": config.model,
        "files": files(bundle, hashes=hashes),
        "entry_points": [signature_fields(signature) for signature in config.entry_points],
        "kernels": [dataclasses.asdict(kernel) for kernel in config.kernels],
        "parameters": summary(parameters(bundle)),
        "targets": config.targets,
        "nodes": report.get("nodes"),
        "losses": report.get("losses"),
        "verification": report.get("verification"),
    }


@checked_choices
def files(bundle: Bundle, *, hashes: bool) -> list[dict[str, Any]]:
    """Returns name, bytes (None if missing) and state of every file that is present or listed.

    Raises:
        InputError: a file cannot be read.
    """
    listed = bundle.config.sha256
    paths = [path for path in bundle.path.rglob("*") if not path.is_dir() or path.is_symlink()]
    present = {path.relative_to(bundle.path).as_posix(): path for path in paths}
    rows = []
    for name in sorted({*listed, *present}):
        path = present.get(name)
        size = None if path is None else path.stat().st_size
        rows.append({"name": name, "bytes": size, "state": _state(path, listed.get(name), hashes)})
        if name in (MARK, REPORT):
            rows[-1]["state"] = OK if path is not None else MISSING
    return rows


def _state(path: Path | None, listed: str | None, hashes: bool) -> str:
    if path is None:
        return MISSING
    if listed is None:
        return UNLISTED
    if not hashes:
        return UNCHECKED
    try:
        return OK if sha256_of(path) == listed else DIFFERS
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}): export the bundle again") from None


def check_whole(directory: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Checks that all files exist and are unchanged since the export.

    Args:
        directory: the bundle's directory, for the message.
        rows: files with their states; see ``files``.

    Raises:
        InputError: a file is missing or changed.
    """
    differ = [row["name"] for row in rows if row["state"] == DIFFERS]
    missing = [row["name"] for row in rows if row["state"] == MISSING]
    problems = [f"{', '.join(differ)}: changed since the export (sha256 differs)"] if differ else []
    problems += [f"{', '.join(missing)}: missing"] if missing else []
    if problems:
        raise InputError(f"{directory} is damaged: {'; '.join(problems)}: export the bundle again")


def parameters(bundle: Bundle, glob: str = "*") -> list[dict[str, Any]]:
    """Returns path, dtype, shape and bytes of the parameters with a matching path.

    Raises:
        InputError: the pattern does not match.
    """
    known = bundle.config.parameters
    names = [name for name in known if fnmatch.fnmatchcase(name, glob)]
    if not names and glob != "*":
        raise InputError(
            f"parameters={glob}: none of the {len(known)} parameters of {bundle.path} matches{near_names(glob, known)}"
        )
    return [{"path": name, **known[name], "bytes": _nbytes(bundle, name)} for name in names]


def _nbytes(bundle: Bundle, name: str) -> int:
    fields = bundle.config.parameters[name]
    return TensorSpec(tuple(fields["shape"]), fields["dtype"]).nbytes


def summary(tensors: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Returns counts and bytes of tensors, in all and per dtype or encoding, and the largest tensors."""
    dtypes: dict[str, dict[str, int]] = {}
    for tensor in tensors:
        total = dtypes.setdefault(tensor.get("encoding", tensor["dtype"]), {"count": 0, "bytes": 0})
        total["count"] += 1
        total["bytes"] += tensor["bytes"]
    largest = sorted(tensors, key=lambda tensor: -tensor["bytes"])[:_LARGEST]
    size = sum(tensor["bytes"] for tensor in tensors)
    return {"count": len(tensors), "bytes": size, "dtypes": dtypes, "largest": largest}


def _report(directory: Path) -> dict[str, Any]:
    path = directory / REPORT
    try:
        report = file_json(path, LARGE_JSON_BOUNDS, nonfinite=True)
        for row in report.get("verification", ()):
            _ = row["device"], row["skipped"] if "skipped" in row else _figures(row)
    except FileNotFoundError:
        return {}
    except (AttributeError, KeyError, OSError, TypeError, ValueError) as error:
        raise InputError(f"{path}: damaged ({error}): export the bundle again") from None
    return report


def _figures(row: Mapping[str, Any]) -> tuple[str, list[float]]:
    return f"{row['entry_point']}.{row['result']}", [float(row[name]) for name in ("max_abs", "max_rel", "cosine")]
