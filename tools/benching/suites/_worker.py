"""Measured processes that stay, so that several models take turns without being loaded again."""

import json
import os
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Self

from tools.benching.suites._run import Result, failure

# After a call threads may look for more work for a while: the next one's turn begins when they sleep.
_SETTLE_S: Final = 0.25
_END_S: Final = 60.0


class Worker:
    """A process that says that it is ready and then answers requests, a line of JSON each.

    Attributes:
        ready: what it said first.
    """

    def __init__(self, command: Sequence[str], env: Mapping[str, str], cwd: Path) -> None:
        """Starts it and waits until it is ready.

        Raises:
            BenchError: it ended.
        """
        self._command: Final = tuple(command)
        self._stderr: Final = tempfile.TemporaryFile("w+")  # noqa: SIM115 (closed with the process)
        self._process: Final = subprocess.Popen(
            command,
            env=dict(env),
            cwd=cwd,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            text=True,
        )
        try:
            self.ready: Final = self._read()
        except BaseException:
            self.close()
            raise

    @property
    def pid(self) -> int:
        """The process's number."""
        return self._process.pid

    def ask(self, **request: Any) -> Result:
        """Sends a request, when the machine has settled, and waits for the answer.

        Raises:
            BenchError: the process ended.
        """
        time.sleep(_SETTLE_S)
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise self._failure() from None
        return self._read()

    def close(self) -> None:
        """Ends the process."""
        if self._process.stdin is not None and not self._process.stdin.closed:
            try:
                self._process.stdin.close()
            except BrokenPipeError:
                self._process.kill()
        try:
            self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._stderr.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _read(self) -> Result:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise self._failure()
        return json.loads(line)

    def _failure(self) -> Exception:
        code = self._process.wait()
        self._stderr.seek(0, os.SEEK_SET)
        return failure(self._command, code, self._stderr.read())
