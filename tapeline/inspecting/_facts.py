"""What there is to know of a bundle, as JSON has it."""

import dataclasses
import fnmatch
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from lang_core import InputError, TensorSpec, near_names
from tapeline.bundle import MARK, REPORT, Bundle, sha256_of, signature_fields

_LARGEST: Final = 10

# States of a file.
OK: Final = "ok"
DIFFERS: Final = "differs"
MISSING: Final = "missing"
UNCHECKED: Final = "not checked"
UNLISTED: Final = "not listed"


def facts(bundle: Bundle, *, hashes: bool) -> dict[str, Any]:
    """Everything but the graph.

    Args:
        bundle: the bundle.
        hashes: whether to read all files to see if they are what was exported.

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
        "kernels": [dataclasses.asdict(each) for each in config.kernels],
        "parameters": summary(parameters(bundle)),
        "targets": config.targets,
        "nodes": report.get("nodes"),
        "verification": report.get("verification"),
    }


def files(bundle: Bundle, *, hashes: bool) -> list[dict[str, Any]]:
    """Every file that is there or should be: name, bytes (None where it is missing), and state."""
    listed = bundle.config.sha256
    paths = [path for path in bundle.path.rglob("*") if not path.is_dir() or path.is_symlink()]
    present = {path.relative_to(bundle.path).as_posix(): path for path in paths}
    found = []
    for name in sorted({*listed, *present}):
        path = present.get(name)
        size = None if path is None else path.stat().st_size
        found.append({"name": name, "bytes": size, "state": _state(path, listed.get(name), hashes)})
        if name in (MARK, REPORT):
            found[-1]["state"] = OK if path is not None else MISSING
    return found


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


def check_whole(directory: Path, found: Sequence[Mapping[str, Any]]) -> None:
    """Checks that all files are there and what was exported.

    Raises:
        InputError: some are not.
    """
    differ = [each["name"] for each in found if each["state"] == DIFFERS]
    missing = [each["name"] for each in found if each["state"] == MISSING]
    said = [f"{', '.join(differ)}: not what was exported (sha256 differs)"] if differ else []
    said += [f"{', '.join(missing)}: missing"] if missing else []
    if said:
        raise InputError(f"{directory} is damaged: {'; '.join(said)}: export the bundle again")


def parameters(bundle: Bundle, glob: str = "*") -> list[dict[str, Any]]:
    """The parameters whose path matches: path, dtype, shape, bytes.

    Raises:
        InputError: none matches.
    """
    known = bundle.config.parameters
    names = [name for name in known if fnmatch.fnmatchcase(name, glob)]
    if not names and glob != "*":
        raise InputError(
            f"--parameters={glob}: none of the {len(known)} parameters of {bundle.path} matches"
            f"{near_names(glob, known)}"
        )
    return [{"path": name, **known[name], "bytes": _nbytes(bundle, name)} for name in names]


def _nbytes(bundle: Bundle, name: str) -> int:
    fields = bundle.config.parameters[name]
    return TensorSpec(tuple(fields["shape"]), fields["dtype"]).nbytes


def summary(found: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """How many there are, per dtype (of packed ones the encoding), and the largest."""
    dtypes: dict[str, dict[str, int]] = {}
    for each in found:
        total = dtypes.setdefault(each.get("encoding", each["dtype"]), {"count": 0, "bytes": 0})
        total["count"] += 1
        total["bytes"] += each["bytes"]
    largest = sorted(found, key=lambda each: -each["bytes"])[:_LARGEST]
    return {"count": len(found), "bytes": sum(each["bytes"] for each in found), "dtypes": dtypes, "largest": largest}


def _report(directory: Path) -> dict[str, Any]:
    path = directory / REPORT
    try:
        report = json.loads(path.read_text())
        for row in report.get("verification", ()):
            _ = row["device"], row["skipped"] if "skipped" in row else _figures(row)
    except FileNotFoundError:
        return {}
    except (AttributeError, KeyError, OSError, TypeError, ValueError) as error:
        raise InputError(f"{path}: damaged ({error}): export the bundle again") from None
    return report


def _figures(row: Mapping[str, Any]) -> tuple[str, list[float]]:
    return f"{row['entry_point']}.{row['result']}", [float(row[name]) for name in ("max_abs", "max_rel", "cosine")]
