"""The checkpoint that the groups of a suite are made from, and folders for them."""

import contextlib
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, Protocol

from tools.benching.suites._plan import Plan
from tools.benching.suites._run import Runner

_STORED: Final = "bf16"


class Group(Protocol):
    """Group of rows of a suite.

    Attributes:
        bits: its name.
        file: a model's file; None where it is made from the checkpoint.
    """

    @property
    def bits(self) -> str: ...

    @property
    def file(self) -> Path | None: ...


@contextlib.contextmanager
def suite_folder(runner: Runner, plan: Plan, name: str, groups: Sequence[Group]) -> Iterator[Path]:
    """Makes a suite's folder, with ``checkpoint`` in it where a group needs one; all of it is removed afterwards."""
    above = runner.workdir / name
    above.mkdir()
    try:
        if any(group.file is None for group in groups):
            runner.say("writing a checkpoint ...")
            job = {"directory": str(above / "checkpoint"), "sizes": list(plan.decoder), "dtype": _STORED}
            runner.job("tools.benching.jobs.checkpoint", **job)
        yield above
    finally:
        shutil.rmtree(above, ignore_errors=True)


@contextlib.contextmanager
def group_folder(above: Path, group: Group) -> Iterator[Path]:
    """Makes a group's folder, which is removed after its measurements."""
    folder = above / group.bits
    folder.mkdir()
    yield folder
    shutil.rmtree(folder)
