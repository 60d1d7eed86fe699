"""Program of a process that ends a server which does not end by itself, even if native code holds its interpreter.

The signal handler in C writes each signal's number to the program's stdin, whichever thread holds the interpreter. The
program passes it on to the server's event loop, by stdout, and kills the server when its time is over.
"""

import contextlib
import json
import os
import select
import signal
import sys
import time
from datetime import UTC, datetime
from typing import Final

from tapeline.interrupts._processes import kill_descendants

_TOLD: Final = "the server did not end in time, and was killed: native code holds the interpreter"


def main() -> None:
    """Watches the parent. Arguments: its id, and its seconds after a SIGTERM, a SIGINT, and any second signal."""
    parent, seconds, again = int(sys.argv[1]), tuple(map(float, sys.argv[2:4])), float(sys.argv[4])
    allowed = {signal.SIGTERM: seconds[0], signal.SIGINT: seconds[1]}
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    end: float | None = None
    told = False
    while end is None or time.monotonic() < end:
        left = None if end is None else max(0.0, end - time.monotonic())
        if not select.select([0], [], [], left)[0]:
            continue
        numbers = os.read(0, 64)
        if not numbers:
            return  # the server has ended
        for number in numbers:
            if number in allowed:
                time_left = again if told else allowed[signal.Signals(number)]
                end = min(end or float("inf"), time.monotonic() + time_left)
                told = True
        with contextlib.suppress(OSError):  # the server ends
            os.write(1, numbers)
    if os.getppid() == parent:
        _kill(parent)


def _kill(parent: int) -> None:
    line = {"time": datetime.now(UTC).isoformat(timespec="milliseconds"), "level": "error", "event": "killed"}
    with contextlib.suppress(OSError):  # nobody reads the log
        os.write(2, f"{json.dumps(line | {'error': _TOLD})}\n".encode())
    own = os.getpid()
    os.kill(parent, signal.SIGSTOP)  # it starts no more processes
    kill_descendants(parent, spared=own)
    os.kill(parent, signal.SIGKILL)
