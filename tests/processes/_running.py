"""Launches of real ranks, of a bundle of the demo model that is cut in two."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

PROMPT: Final = "It was the best of times,"
GENERATE: Final = ("generate", "--bundle=demo", "--backend=jax", "--mesh=tp=2", f"--prompt={PROMPT}")
ENDS_WITHIN: Final = 10.0  # seconds that ranks have to end after one of them: what docs/distributed.md promises

MAIN: Final = "import sys; from tapeline.command import main; sys.exit(main())"


class Launch:
    """``tapeline`` in a process of its own, with its ranks if it has some.

    Args:
        folder: where the user stands.
        arguments: the command and its flags.
        program: Python code to run.
        environment: variables beside those of this process.
    """

    def __init__(self, folder: Path, *arguments: str, program: str = MAIN, **environment: str) -> None:
        kept = {key: value for key, value in os.environ.items() if key not in ("XLA_FLAGS", "BUILD_WORKING_DIRECTORY")}
        paths = os.pathsep.join(map(os.path.abspath, sys.path))
        self.errors: Final = folder / f"{time.monotonic_ns()}.err"
        with self.errors.open("wb") as errors:
            self.process: Final = subprocess.Popen(
                [sys.executable, "-c", program, *arguments],
                cwd=folder,
                env={**kept, **environment, "PYTHONPATH": paths},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
            )

    def ended(self, seconds: float = 120) -> tuple[int, str, str]:
        """Waits for the end and returns exit code, stdout and stderr."""
        out, _ = self.process.communicate(timeout=seconds)
        return self.process.returncode, out.decode(), self.errors.read_text()

    def ended_by_a_kill(self, rank: int, began: float, ranks: Iterable[int]) -> None:
        """Checks that everything ended in time after a rank was killed, with an error that names it.

        Args:
            rank: number of the killed one.
            began: when it was killed, in seconds of the monotonic clock.
            ranks: processes of all ranks.
        """
        code, _, errors = self.ended()
        assert time.monotonic() - began < ENDS_WITHIN
        assert code == 1
        said = f"error: rank {rank} was killed by signal 9 (SIGKILL): the other ranks were ended"
        assert errors.splitlines()[-1] == said, errors
        assert not any(map(is_alive, ranks))

    def until_it_says(self, text: str) -> None:
        """Waits for a text on stderr."""
        until(lambda: text in self.errors.read_text() or self.process.poll() is not None)

    def until_it_prints(self, count: int = 1) -> None:
        """Waits for some bytes on stdout, and takes them."""
        assert self.process.stdout is not None
        while count > 0:
            read = len(os.read(self.process.stdout.fileno(), count))
            assert read, self.errors.read_text()
            count -= read

    def ranks(self) -> dict[int, int]:
        """Returns the processes of the ranks by their numbers."""
        return {int(_flag(pid, "--process_id=")): pid for pid in _children(self.process.pid)}


def until(true: Callable[[], bool], seconds: float = 120) -> None:
    """Waits until something is true."""
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.05)


def is_alive(pid: int) -> bool:
    """Returns whether a process has not ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):  # gone before, or while it was read
        return False


@contextlib.contextmanager
def launched(folder: Path, *arguments: str, **environment: str) -> Iterator[Launch]:
    """Runs ``tapeline launch`` with two ranks; kills it at the end."""
    launch = Launch(folder, "launch", "--processes=2", *arguments, **environment)
    try:
        yield launch
    finally:
        with contextlib.suppress(ProcessLookupError):
            launch.process.send_signal(signal.SIGKILL)
        launch.process.communicate()


def apart(
    homes: tuple[Path, Path], flags: Sequence[str] = GENERATE, others: Sequence[str] | None = None, program: str = MAIN
) -> list[tuple[int, str, str]]:
    """Runs two ranks that nobody launched, as on two machines; returns how each ended.

    Args:
        homes: where each stands.
        flags: the command of both and its flags.
        others: those of the second one, where they are not the same.
        program: Python code of the second one.
    """
    with socket.create_server(("localhost", 0)) as server:
        port = server.getsockname()[1]
    place = ("launch", f"--coordinator=localhost:{port}", "--num_processes=2", "--timeout=30")
    ranks = [
        Launch(homes[0], *place, "--process_id=0", "--", *flags),
        Launch(homes[1], *place, "--process_id=1", "--", *(flags if others is None else others), program=program),
    ]
    return [rank.ended() for rank in ranks]


def _children(parent: int) -> list[int]:
    pids = [int(path.name) for path in Path("/proc").iterdir() if path.name.isdecimal()]
    return [pid for pid in pids if _parent(pid) == parent]


def _parent(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except (FileNotFoundError, ProcessLookupError):
        return 0


def _flag(pid: int, name: str) -> str:
    words = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
    return next(word for word in words if word.startswith(name)).removeprefix(name)
