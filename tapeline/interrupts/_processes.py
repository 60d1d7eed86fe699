"""The end of a process that cannot wait for its threads: its children first, then itself."""

import contextlib
import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final, NoReturn

_REPORT: Final = 0.2  # seconds


def end_at_once(code: int) -> NoReturn:
    """Kills every process that this one has started, and ends without destructors of native code, which may crash."""
    kill_descendants(os.getpid())
    os._exit(code)


def kill_descendants(ancestor: int, spared: int | None = None) -> None:
    """Kills the processes that a process has started, and those that they have, except one."""
    for pid in _descendants(ancestor):
        if pid == spared:
            continue
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)


class Deadline:
    """Ends the process when its time is over, whatever its threads wait for."""

    def __init__(self) -> None:
        self._cancelled: Final = threading.Event()

    def set(self, seconds: float, code: int, say: Callable[[], object]) -> None:
        """Sets a time, which holds beside those that were set before.

        Args:
            seconds: time from now.
            code: exit code.
            say: reports it; called before the end, which does not wait for it long.
        """

        def end() -> None:
            if self._cancelled.wait(seconds):
                return
            reporter = threading.Thread(target=say, daemon=True)
            reporter.start()
            reporter.join(_REPORT)
            end_at_once(code)

        threading.Thread(target=end, name="deadline", daemon=True).start()

    def cancel(self) -> None:
        """Lets the process live on."""
        self._cancelled.set()


def _descendants(ancestor: int) -> list[int]:
    """Returns the descendants of a process, parents first; none if there is no /proc."""
    children: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it has ended
            # The name, in parentheses, may hold anything; state and parent stand behind it.
            parent = int(path.read_text(errors="replace").rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(path.parent.name))
    descendants: list[int] = []
    waiting = [ancestor]
    while waiting:
        started = children.get(waiting.pop(), [])
        descendants += started
        waiting += started
    return descendants
