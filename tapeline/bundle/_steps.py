"""Finished steps of an export with the keys that they depend on, such that another run can reuse them."""

import contextlib
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from lang_core import LARGE_JSON_BOUNDS, file_json
from tapeline.bundle._files import REPORT, sha256_of


@dataclass(frozen=True, slots=True)
class FinishedStep:
    """Finished step of an export.

    Attributes:
        key: SHA-256 of everything that the step depends on.
        files: SHA-256 of the files that it wrote, by name.
        result: its result, as JSON.
        reused: True if an earlier run did it.
    """

    key: str
    files: dict[str, str]
    result: dict[str, Any]
    reused: bool = False


class Steps:
    """Steps of an export, of this run and earlier ones.

    A step of an earlier run is reused if its key is the same and its files are unchanged, bit for bit.

    Args:
        directory: directory of the files.
        earlier: directories of earlier runs, the likeliest first; ``directory`` may be one of them.

    Attributes:
        done: steps of this run, by name.
    """

    FILE: Final = "steps.json"

    def __init__(self, directory: Path, earlier: Iterable[Path] = ()) -> None:
        self._directory = directory
        self._earlier = [(place, _read(place)) for place in earlier]
        self._noted = {
            name: step for place, steps in self._earlier if place == directory for name, step in steps.items()
        }
        self.done: dict[str, FinishedStep] = {}

    def run(self, name: str, key: Any, files: Iterable[str], make: Callable[[], dict[str, Any] | None]) -> Any:
        """Runs a step, unless an earlier run did it; returns its result.

        Args:
            name: name of the step.
            key: everything that it depends on, as JSON.
            files: names of the files that it writes.
            make: function that runs it and returns its result, as JSON.
        """
        known = self.result(name, key)
        if known is not None:
            return known
        for file in files:
            # It may be a link to a file of an earlier bundle, which must not be written.
            (self._directory / file).unlink(missing_ok=True)
        return self.finish(name, key, dict.fromkeys(files), make() or {})

    def result(self, name: str, key: Any) -> dict[str, Any] | None:
        """Returns the result of an earlier run, with its files in place; None if the step is still to be run."""
        wanted = _digest(key)
        for place, steps in self._earlier:
            step = steps.get(name)
            if step is not None and step.key == wanted and _hold(place, step.files):
                for file in step.files:
                    _link(place / file, self._directory / file)
                self._note(name, FinishedStep(wanted, step.files, step.result, reused=True))
                return step.result
        return None

    def finish(self, name: str, key: Any, files: Mapping[str, str | None], result: dict[str, Any]) -> dict[str, Any]:
        """Records a finished step and its files, with their SHA-256 if it is known."""
        known = {file: sha256 or sha256_of(self._directory / file) for file, sha256 in files.items()}
        self._note(name, FinishedStep(_digest(key), known, result))
        return result

    def _note(self, name: str, step: FinishedStep) -> None:
        self.done[name] = self._noted[name] = step
        beside = self._directory / f"{self.FILE}.new"
        beside.write_text(json.dumps(_json(self._noted)))
        os.replace(beside, self._directory / self.FILE)

    @property
    def sha256(self) -> dict[str, str]:
        """SHA-256 of every file that a step of this run wrote or reused."""
        return {file: sha256 for step in self.done.values() for file, sha256 in step.files.items()}

    def as_json(self) -> dict[str, Any]:
        """Returns the steps of this run for the report, which later runs read."""
        return _json(self.done)

    def begin(self, keep: Iterable[str]) -> None:
        """Removes files of an earlier run that do not belong to a step, except some."""
        self._remove_but({*keep, *(file for step in self._noted.values() for file in step.files)})

    def end(self, keep: Iterable[str]) -> None:
        """Removes files that do not belong to a step of this run, except some."""
        self._remove_but({*keep, *self.sha256})

    def _remove_but(self, files: set[str]) -> None:
        names = {Path(file).parts[0] for file in files}
        for path in self._directory.iterdir():
            if path.name not in names and path.name != self.FILE:
                shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()


def _digest(key: Any) -> str:
    return hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()


def _json(steps: Mapping[str, FinishedStep]) -> dict[str, Any]:
    return {name: asdict(step) for name, step in steps.items()}


def _read(directory: Path) -> dict[str, FinishedStep]:
    """Reads the steps that are recorded in a directory; none if the record is missing or damaged."""
    for name, path in ((Steps.FILE, ()), (REPORT, ("steps",))):
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            steps = file_json(directory / name, LARGE_JSON_BOUNDS, nonfinite=True)
            for part in path:
                steps = steps[part]
            return {step: FinishedStep(**fields) for step, fields in steps.items()}
    return {}


def _hold(directory: Path, files: Mapping[str, str]) -> bool:
    with contextlib.suppress(OSError):
        return all(sha256_of(directory / file) == wanted for file, wanted in files.items())
    return False


def _link(source: Path, target: Path) -> None:
    if source == target:
        return
    target.unlink(missing_ok=True)
    try:
        os.link(source, target)
    except OSError:  # a file system without links
        shutil.copyfile(source, target)
