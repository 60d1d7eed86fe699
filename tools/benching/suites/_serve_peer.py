"""The peer of serve: llama.cpp's own server."""

import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from lang_core import InputError

SERVER: Final = "llama-server"
_VERSION: Final = re.compile(r"version: (\S+)")


@dataclass(frozen=True, slots=True)
class ServerPeer:
    """llama.cpp's server.

    Attributes:
        program: its path, or its name in PATH.
        version: what it says of itself.
    """

    program: str
    version: str

    def command(self, file: Path, port: int, slots: int, capacity: int) -> list[str]:
        """Returns the command that serves a GGUF file; what is not named is its default."""
        threads = str(len(os.sched_getaffinity(0)))
        sizes = ["--parallel", str(slots), "--ctx-size", str(slots * capacity)]
        listening = ["--host", "127.0.0.1", "--port", str(port)]
        return [self.program, "--model", str(file), *listening, *sizes, "--threads", threads]

    def about(self) -> str:
        """Returns what a reader has to know of it."""
        return (
            f"{SERVER}: llama.cpp {self.version}, one thread per core, as many slots as ours, prompts cached; all else "
            "is its default."
        )


def find_server(program: str) -> ServerPeer:
    """Asks a program whether it is llama.cpp's server.

    Raises:
        InputError: it cannot be started, or is another program.
    """
    advice = "name the llama-server that was built (docs/benchmarks.md says how)"
    try:
        done = subprocess.run([program, "--version"], capture_output=True, text=True, check=False)
    except OSError as error:
        raise InputError(f"--peer_server={program}: cannot be started ({error.strerror}): {advice}") from None
    version = _VERSION.search(done.stdout + done.stderr)
    if version is None:
        raise InputError(f"--peer_server={program}: does not tell its version as llama-server does: {advice}")
    return ServerPeer(program, version[1])
