"""Checkpoints of a training's state, by orbax."""

import errno
import os
import re
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Final, Self, TypeVar

import jax
import orbax.checkpoint as ocp

from lang_core import CheckpointError
from run_jax.training._trainer import TrainingState

T = TypeVar("T")

_ATTEMPTS: Final = 6
_OS_ERROR: Final = re.compile(r"os_error_code='(\d+)'")


class TrainingCheckpoints:
    """Checkpoints in a directory, the newest two; one that was being written when the process died does not count.

    Args:
        directory: absolute path, which is made if it is missing.
    """

    def __init__(self, directory: Path) -> None:
        self.directory: Final = directory
        options = ocp.CheckpointManagerOptions(max_to_keep=2, enable_async_checkpointing=False)
        self._manager: Final = _with_removal(lambda: ocp.CheckpointManager(directory, options=options))

    def latest(self) -> int | None:
        """Returns the number of steps that were done at the newest checkpoint; None without one."""
        return self._manager.latest_step()

    def save(self, step: int, state: TrainingState) -> None:
        """Writes the state after so many steps; every process takes part.

        Raises:
            OSError: the file system refuses, such as a full disk.
        """
        try:
            _with_removal(lambda: self._save(step, state))
        except (ValueError, RuntimeError) as error:
            refusal = _refusal(error, self.directory)
            if refusal is None:
                raise
            raise refusal from error

    def _save(self, step: int, state: TrainingState) -> None:
        self._manager.save(step, args=ocp.args.StandardSave(state._asdict()), force=True)
        self._manager.wait_until_finished()

    def restore(self, step: int, state: TrainingState) -> TrainingState:
        """Reads a state.

        Args:
            step: number of steps that were done.
            state: state with the shapes, dtypes and shardings to read.

        Raises:
            CheckpointError: the checkpoint is damaged, or of another training.
        """
        wanted = jax.tree.map(ocp.utils.to_shape_dtype_struct, state._asdict())
        try:
            return TrainingState(**self._manager.restore(step, args=ocp.args.StandardRestore(wanted)))
        except (ValueError, KeyError, OSError) as error:
            reason = str(error).strip().partition("\n")[0]
            raise CheckpointError(
                f"{self.directory}: the checkpoint of step {step} cannot be read ({reason}): remove the directory, and "
                "begin the training anew"
            ) from error

    def close(self) -> None:
        """Releases orbax's resources."""
        self._manager.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _with_removal(call: Callable[[], T]) -> T:
    """Makes a call that removes the files of a failed attempt; again, if threads of that attempt wrote meanwhile."""
    for attempt in range(_ATTEMPTS):
        try:
            return call()
        except OSError as error:
            if error.errno != errno.ENOTEMPTY or attempt == _ATTEMPTS - 1:
                raise
            time.sleep(0.05 * 2**attempt)
    raise AssertionError("the last attempt returns or raises")


def _refusal(error: BaseException, directory: Path) -> OSError | None:
    """Returns the error of the file system that tensorstore met, which is in its text alone; None if there is none."""
    match = _OS_ERROR.search(str(error))
    return OSError(int(match[1]), os.strerror(int(match[1])), str(directory)) if match else None
