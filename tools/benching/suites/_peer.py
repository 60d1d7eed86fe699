"""The peer of decode, llama.cpp, in whatever interpreter has it."""

import json
import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Final

from lang_core import InputError
from tools.benching.suites._run import failure

PEERS: Final = ("llama.cpp",)

_PROGRAMS: Final = Path(__file__).absolute().parents[1] / "peers"
_MISSING: Final = 3


@dataclass(frozen=True, slots=True)
class PeerProgram:
    """A peer's program: a file, not a module, for its interpreter knows nothing of ours.

    Attributes:
        python: the interpreter that is to have the peer's package.
        settings: what the package says of itself; None where that interpreter has it not.
        file: the program's name.
    """

    python: str
    settings: dict[str, Any] | None
    file: ClassVar[str]

    def command(self, **arguments: Any) -> Sequence[str]:
        """Returns the command that starts the program."""
        return [self.python, str(_PROGRAMS / self.file), json.dumps(arguments)]


class Peer(PeerProgram):
    """llama.cpp."""

    __slots__ = ()
    file = "llama_cpp_worker.py"

    def about(self) -> str:
        """Returns what a reader has to know of it."""
        if self.settings is None:
            return "llama.cpp: not installed where `--peer_python` points: nothing of it was measured."
        return (
            "llama.cpp: llama-cpp-python {version}, file mapped, cache {cache}, flash attention {flash_attention}, "
            "prompts in pieces of {batch}, {features}.".format(
                **self.settings | {"features": ", ".join(self.settings["features"])}
            )
        )


def find_peer(python: str) -> Peer:
    """Asks an interpreter whether it has llama-cpp-python.

    Raises:
        InputError: it is no program that can be started.
        BenchError: llama-cpp-python is there and fails.
    """
    return Peer(python, settings_of(Peer(python, None).command(), "llama-cpp-python"))


def settings_of(command: Sequence[str], package: str) -> dict[str, Any] | None:
    """Returns what a peer's program says of itself; None where its interpreter has not the package.

    Raises:
        InputError: the interpreter is no program that can be started.
        BenchError: the package is there and fails.
    """
    try:
        done = subprocess.run(command, env=peer_environment(), capture_output=True, text=True, check=False)
    except OSError as error:
        raise InputError(
            f"--peer_python={command[0]}: cannot be started ({error.strerror}): name the Python interpreter that has "
            f"{package} (docs/benchmarks.md says how to install it)"
        ) from None
    if done.returncode == _MISSING:
        return None
    if done.returncode:
        raise failure(command, done.returncode, done.stderr)
    return json.loads(done.stdout.splitlines()[-1])


def peer_environment() -> dict[str, str]:
    """The environment without what leads to our own modules."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
