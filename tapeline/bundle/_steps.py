"""What is done of an export, and what decided about it: so that another run need not do it again."""

import contextlib
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from tapeline.bundle._files import REPORT, sha256_of


@dataclass(frozen=True, slots=True)
class Step:
    """A part of an export that is done.

    Attributes:
        key: SHA-256 of all that decides about it.
        files: SHA-256 of what it made, by name.
        result: what it found out, as JSON.
        reused: whether an earlier run did it.
    """

    key: str
    files: dict[str, str]
    result: dict[str, Any]
    reused: bool = False


class Steps:
    """The steps of an export: done in this run, and by earlier ones.

    A step of an earlier run counts where its key is the same and its files are what they were, bit for bit.

    Args:
        directory: where files are made.
        earlier: directories of earlier runs, the likeliest first; ``directory`` may be one of them.

    Attributes:
        done: the steps of this run, by name.
    """

    FILE: Final = "steps.json"

    def __init__(self, directory: Path, earlier: Iterable[Path] = ()) -> None:
        self._directory = directory
        self._earlier = [(place, _read(place)) for place in earlier]
        self._noted = {
            name: step for place, steps in self._earlier if place == directory for name, step in steps.items()
        }
        self.done: dict[str, Step] = {}

    def run(self, name: str, key: Any, files: Iterable[str], make: Callable[[], dict[str, Any] | None]) -> Any:
        """Does a step, unless it is done.

        Args:
            name: of the step.
            key: all that decides about it, as JSON.
            files: what it makes, in the directory.
            make: does it; its result as JSON.
        """
        known = self.result(name, key)
        if known is not None:
            return known
        for file in files:
            # It may be a link to an earlier bundle's: never write into it.
            (self._directory / file).unlink(missing_ok=True)
        return self.finish(name, key, dict.fromkeys(files), make() or {})

    def result(self, name: str, key: Any) -> dict[str, Any] | None:
        """What the step found out in an earlier run, its files being in place; None where it is to be done."""
        wanted = _digest(key)
        for place, steps in self._earlier:
            step = steps.get(name)
            if step is not None and step.key == wanted and _hold(place, step.files):
                for file in step.files:
                    _link(place / file, self._directory / file)
                self._note(name, Step(wanted, step.files, step.result, reused=True))
                return step.result
        return None

    def finish(self, name: str, key: Any, files: Mapping[str, str | None], result: dict[str, Any]) -> dict[str, Any]:
        """Notes that a step is done; ``files`` with their SHA-256 where it is known."""
        known = {file: found or sha256_of(self._directory / file) for file, found in files.items()}
        self._note(name, Step(_digest(key), known, result))
        return result

    def _note(self, name: str, step: Step) -> None:
        self.done[name] = self._noted[name] = step
        beside = self._directory / f"{self.FILE}.new"
        beside.write_text(json.dumps(_json(self._noted)))
        os.replace(beside, self._directory / self.FILE)

    @property
    def sha256(self) -> dict[str, str]:
        """Of every file that a step of this run made, or took over."""
        return {file: found for step in self.done.values() for file, found in step.files.items()}

    def as_json(self) -> dict[str, Any]:
        """For the report, which later runs read."""
        return _json(self.done)

    def begin(self, keep: Iterable[str]) -> None:
        """Removes what an earlier run left that is of no step and not to be kept."""
        self._remove_but({*keep, *(file for step in self._noted.values() for file in step.files)})

    def end(self, keep: Iterable[str]) -> None:
        """Removes what is of no step of this run and not to be kept."""
        self._remove_but({*keep, *self.sha256})

    def _remove_but(self, files: set[str]) -> None:
        names = {Path(file).parts[0] for file in files}
        for path in self._directory.iterdir():
            if path.name not in names and path.name != self.FILE:
                shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()


def _digest(key: Any) -> str:
    return hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()


def _json(steps: Mapping[str, Step]) -> dict[str, Any]:
    return {name: asdict(step) for name, step in steps.items()}


def _read(directory: Path) -> dict[str, Step]:
    """The steps that a directory knows of: none where nobody noted any, or the notes are damaged."""
    for name, path in ((Steps.FILE, ()), (REPORT, ("steps",))):
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            found = json.loads((directory / name).read_text())
            for part in path:
                found = found[part]
            return {step: Step(**fields) for step, fields in found.items()}
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
