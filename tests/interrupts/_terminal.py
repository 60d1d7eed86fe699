"""Commands on a terminal of their own, on which Ctrl-C is pressed."""

import contextlib
import os
import pty
import re
import select
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from lang_core import python_command

_HANGS: Final = 60.0
"""Seconds after which a command is said to hang."""
_CTRL_C: Final = b"\x03"
_PROGRAM: Final = "from tapeline.program import main; main()"
_CODES: Final = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


@dataclass(frozen=True, slots=True)
class End:
    """How a command ended.

    Attributes:
        code: exit code, negative for a signal; None if it hung.
        seconds: time since the last Ctrl-C; None if there was none.
        text: what the terminal showed.
    """

    code: int | None
    seconds: float | None
    text: str

    @property
    def is_clean(self) -> bool:
        """True of exit code 130 with one line and no traceback."""
        words = self.text.count("error:"), self.text.count("error: interrupted\n")
        return self.code == 130 and words == (1, 1) and "Traceback" not in self.text and "Exception" not in self.text


class Terminal:
    """``tapeline`` on a terminal.

    Args:
        folder: working directory.
        arguments: the command and its flags.
        ignored: True starts the command with SIGINT ignored, as a script in the background does.
    """

    def __init__(self, folder: Path, arguments: Sequence[str], *, ignored: bool = False) -> None:
        environment = os.environ | {
            "PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path)),
            "XDG_CACHE_HOME": str(folder / "cache"),
        }
        self._command: Final = [*python_command("-c", _PROGRAM), *arguments]
        self._shown = b""
        self._pressed: float | None = None
        self.pid, self._terminal = pty.fork()
        if self.pid == 0:
            try:
                signal.signal(signal.SIGINT, signal.SIG_IGN if ignored else signal.SIG_DFL)
                os.chdir(folder)
                os.execve(self._command[0], self._command, environment)
            finally:
                os._exit(127)

    @property
    def text(self) -> str:
        """Text that the terminal has shown, without colours, positions and carriage returns."""
        return _CODES.sub("", self._shown.decode(errors="replace")).replace("\r", "")

    def press(self) -> None:
        """Presses Ctrl-C."""
        self._pressed = time.monotonic()
        os.write(self._terminal, _CTRL_C)

    def type(self, text: str) -> None:
        """Types a text."""
        os.write(self._terminal, text.encode())

    def wait_for(self, pattern: str, start: int = 0) -> None:
        """Waits until the text shows a pattern behind its first ``start`` characters."""
        end = time.monotonic() + 10 * _HANGS
        while not re.search(pattern, self.text[start:]):
            assert self._read(1.0), f"{self._command}: ended without {pattern}: {self.text}"
            assert time.monotonic() < end, f"{self._command}: {pattern} is not shown: {self.text}"

    def read_for(self, seconds: float) -> bool:
        """Reads for a time, and returns whether the command still runs."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if not self._read(end - time.monotonic()):
                return False
        return True

    def end(self) -> End:
        """Waits for the end of the command, which is killed if it hangs."""
        end = time.monotonic() + _HANGS
        while self._read(1.0):
            if time.monotonic() > end:
                os.kill(self.pid, signal.SIGKILL)
                os.waitpid(self.pid, 0)
                self.pid = 0
                return End(None, None, self.text)
        _, status = os.waitpid(self.pid, 0)
        self.pid = 0
        seconds = None if self._pressed is None else time.monotonic() - self._pressed
        return End(os.waitstatus_to_exitcode(status), seconds, self.text)

    def close(self) -> None:
        """Ends what still runs."""
        if self.pid:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        os.close(self._terminal)

    def _read(self, seconds: float) -> bool:
        """Reads what is shown, and returns False once nothing more will be."""
        if not select.select([self._terminal], [], [], max(seconds, 0.0))[0]:
            return True
        try:
            data = os.read(self._terminal, 1 << 16)
        except OSError:  # the last process of the terminal has ended
            return False
        self._shown += data
        return bool(data)


@contextlib.contextmanager
def on_terminal(folder: Path, *arguments: str, ignored: bool = False) -> Iterator[Terminal]:
    """Runs a command on a terminal for the block."""
    terminal = Terminal(folder, arguments, ignored=ignored)
    try:
        yield terminal
    finally:
        terminal.close()
