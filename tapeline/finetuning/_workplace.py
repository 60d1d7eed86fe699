"""The directory in which a training is at work, until its result takes its place."""

import contextlib
import fcntl
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from lang_core import InputError, json_value, read_json
from tapeline.finetuning._options import check_same

REPORT: Final = "training.json"
LOSSES: Final = "losses.jsonl"
_RECORD: Final = "options.json"
_RESULT: Final = "result"


class Workplace:
    """Directory beside the output, ``.NAME.training``, with the state that a killed training needs to continue.

    Attributes:
        output: path of the result.
        directory: directory of the work.
        checkpoints: directory of checkpoints.
        result: directory that takes the output's place when it is complete.
    """

    def __init__(self, output: Path) -> None:
        self.output: Final = Path(os.path.abspath(output))
        self.directory: Final = self.output.with_name(f".{self.output.name}.training")
        self.checkpoints: Final = self.directory / "checkpoints"
        self.result: Final = self.directory / _RESULT

    def check(self) -> None:
        """Checks, before any work, that the output may be written.

        Raises:
            InputError: it holds other files, or is none that can be made.
        """
        output = self.output
        if output.exists() and (not output.is_dir() or (any(output.iterdir()) and not (output / REPORT).is_file())):
            raise InputError(
                f"output={output}: holds files that are not of a training (it has no {REPORT}): choose another "
                "directory"
            )
        above = next(parent for parent in output.parents if parent.exists())
        if not above.is_dir() or not os.access(above, os.W_OK | os.X_OK):
            raise InputError(f"output={output}: {above} is no directory that can be written: choose another directory")

    @contextlib.contextmanager
    def opened(self, record: dict[str, Any], resume: bool) -> Iterator[None]:
        """Makes the directory, and holds it against other trainings.

        Args:
            record: inputs that decide the result, as JSON values; compared with those of the continued training.
            resume: True goes on if there is work; otherwise it begins anew.

        Raises:
            InputError: another training works there, or the work that should go on is of other options.
        """
        self.directory.mkdir(parents=True, exist_ok=True)
        with (self.directory / "lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise InputError(
                    f"output={self.output}: another training writes there: wait for it, or choose another directory"
                ) from None
            path = self.directory / _RECORD
            if resume and path.exists():
                check_same(
                    read_json(path, "remove it to begin anew", error=InputError, nonfinite=True),
                    record,
                    str(self.output),
                )
            else:
                self._empty()
                _replace(path, json.dumps(record, indent=2) + "\n")
            yield

    def losses(self, steps: int) -> list[float]:
        """Returns the losses of the first steps, and forgets those after them: they are computed again."""
        path = self.directory / LOSSES
        lines = path.read_text().splitlines()[:steps] if path.exists() else []
        _replace(path, "".join(f"{line}\n" for line in lines))
        return [json_value(line, nonfinite=True)["loss"] for line in lines]

    def note(self, step: int, loss: float) -> None:
        """Appends the loss of a step, the first of which is 1."""
        with (self.directory / LOSSES).open("a") as file:
            file.write(json.dumps({"step": step, "loss": loss}) + "\n")

    def publish(self) -> None:
        """Puts the result in the output's place, and removes the rest."""
        shutil.copy(self.directory / LOSSES, self.result / LOSSES)
        before = self.directory / "before"
        if self.output.exists():
            shutil.rmtree(before, ignore_errors=True)
            os.rename(self.output, before)
        os.rename(self.result, self.output)
        shutil.rmtree(self.directory)

    def _empty(self) -> None:
        for path in self.directory.iterdir():
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            elif path.name != "lock":
                path.unlink()


def _replace(path: Path, text: str) -> None:
    partial = path.with_name(f".{path.name}.partial")
    partial.write_text(text)
    os.replace(partial, path)
