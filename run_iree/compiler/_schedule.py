"""Counts the work that a compiled module hands to a device: every dispatch has a cost, whatever it computes."""

import contextlib
import csv
import dataclasses
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

# IREE 3.13 writes "; builtin.module @tapeline > util.func @decode > stream.cmd.execute" above the rows of an execution.
_EXECUTION: Final = re.compile(r"^; .*util\.func (?:\w+ )?@(?P<function>\S+) > .*stream\.cmd\.execute")
_COMMAND: Final = "Command"
_KINDS: Final = {"dispatch": "dispatches", "copy": "copies", "fill": "fills"}


@dataclasses.dataclass(frozen=True)
class Schedule:
    """Work of one call of an entry point, as compiled; the body of a loop counts once.

    Attributes:
        submissions: number of command buffers; the host waits between two.
        dispatches: number of kernels started.
        copies: number of copies between buffers.
        fills: number of fills of buffers.
    """

    submissions: int = 0
    dispatches: int = 0
    copies: int = 0
    fills: int = 0

    def plus(self, other: "Schedule", times: int) -> "Schedule":
        """Returns the work of this schedule and of another one, which runs several times."""
        return Schedule(
            *(
                mine + times * theirs
                for mine, theirs in zip(dataclasses.astuple(self), dataclasses.astuple(other), strict=True)
            )
        )


class ScheduleFile:
    """File into which the compiler writes its schedule.

    Attributes:
        flags: compiler flags that ask for it.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.flags: Final = (
            "--iree-scheduling-dump-statistics-format=csv",
            f"--iree-scheduling-dump-statistics-file={path}",
        )

    def read(self) -> dict[str, Schedule]:
        """Reads the schedules by function, without those that hand nothing over."""
        return schedules(self._path.read_text())


@contextlib.contextmanager
def schedule_file() -> Iterator[ScheduleFile]:
    """Yields a file for one compilation."""
    with tempfile.NamedTemporaryFile("r", prefix="tapeline-schedule-", suffix=".csv") as file:
        yield ScheduleFile(Path(file.name))


def schedules(text: str) -> dict[str, Schedule]:
    """Reads IREE's statistics of scheduling, in CSV.

    >>> schedules('''; builtin.module @m > util.func @f > stream.cmd.execute
    ... "Depth","Command","Symbol"
    ... 0,"dispatch","@a::@b"
    ... 0,"copy",""
    ... ''')
    {'f': Schedule(submissions=1, dispatches=1, copies=1, fills=0)}
    """
    counts: dict[str, dict[str, int]] = {}
    function, column = "", -1
    for line in text.splitlines():
        if line.startswith(";") or not line.strip():
            execution = _EXECUTION.match(line)
            function, column = (execution["function"] if execution else ""), -1
            if execution:
                _add(counts, function, "submissions")
        elif function:
            row = next(csv.reader([line]))
            if column < 0:
                column = row.index(_COMMAND)
            elif row[column] in _KINDS:
                _add(counts, function, _KINDS[row[column]])
    return {name: Schedule(**kinds) for name, kinds in counts.items()}


def _add(counts: dict[str, dict[str, int]], function: str, kind: str) -> None:
    counts.setdefault(function, {}).setdefault(kind, 0)
    counts[function][kind] += 1
