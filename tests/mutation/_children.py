"""Tries mutants in child processes: some end the process, for StableHLO's interpreter crashes, and some never end."""

import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from typing import IO, Final

TRYING: Final = "trying: "
SURVIVOR: Final = "survivor: "
# Of one mutant, and of a child's start.
_SECONDS: Final = 60.0


def survivors(names: Sequence[str], command: Sequence[str], seconds: float = _SECONDS) -> Iterator[str]:
    """Has children try mutants; one that ends its process by a signal, or takes too long, counts as noticed.

    Args:
        names: of the mutants, in the order in which a child tries them.
        command: starts a child, which reads names from its input, one a line. It prints ``TRYING`` and the name before
            it tries one, and ``SURVIVOR`` and the name if no test notices it.
        seconds: how long a child may print nothing.

    Raises:
        RuntimeError: a child fails otherwise.
    """
    while names:
        current = ""
        with _Child(command, names) as child:
            for line in child.lines(seconds):
                if line.startswith(TRYING):
                    current = line.removeprefix(TRYING)
                elif line.startswith(SURVIVOR):
                    yield line.removeprefix(SURVIVOR)
            code = child.ended()
        if code in (0, 1) and current == names[-1]:
            return
        if code >= 0 or not current:
            raise RuntimeError(f"the child that tries {current or names[0]} exits with {code}: see its output above")
        names = names[names.index(current) + 1 :]


class _Child:
    """A child process that reads names; killed when it is left."""

    def __init__(self, command: Sequence[str], names: Sequence[str]) -> None:
        path = os.pathsep.join(filter(None, sys.path))
        self._process = subprocess.Popen(
            command,
            env={**os.environ, "PYTHONPATH": path},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._lines: queue.Queue[str | None] = queue.Queue()
        self._names = names

    def __enter__(self) -> "_Child":
        stdin, stdout = self._process.stdin, self._process.stdout
        if stdin is None or stdout is None:
            raise RuntimeError("a child has no pipes")
        self._reader = threading.Thread(target=self._read, args=(stdout,), daemon=True)
        self._reader.start()
        with stdin:
            stdin.write("".join(f"{name}\n" for name in self._names))
        return self

    def __exit__(self, *error: object) -> None:
        self._process.kill()
        self._process.wait()
        self._reader.join()

    def _read(self, stream: IO[str]) -> None:
        with stream:
            for line in stream:
                self._lines.put(line.rstrip("\n"))
        self._lines.put(None)

    def lines(self, seconds: float) -> Iterator[str]:
        """Yields what a child prints, until it ends, or prints nothing for so long and is killed."""
        while True:
            try:
                line = self._lines.get(timeout=seconds)
            except queue.Empty:
                self._process.send_signal(signal.SIGKILL)
                return
            if line is None:
                return
            yield line

    def ended(self) -> int:
        """Its exit code, negative for a signal."""
        return self._process.wait()
