"""The peer of the engines, transformers on torch, in whatever interpreter has it."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tools.benching.suites._peer import settings_of

TORCH: Final = "transformers"

# A file, not a module: its interpreter knows nothing of ours.
_PROGRAM: Final = Path(__file__).absolute().parents[1] / "peers" / "transformers_worker.py"


@dataclass(frozen=True, slots=True)
class TorchPeer:
    """transformers.

    Attributes:
        python: the interpreter that is to have it.
        settings: its version and torch's; None where that interpreter has it not.
    """

    python: str
    settings: dict[str, Any] | None

    def command(self, **arguments: Any) -> Sequence[str]:
        """Returns the command that starts its program."""
        return [self.python, str(_PROGRAM), json.dumps(arguments)]

    def about(self) -> str:
        """Returns what a reader has to know of it."""
        if self.settings is None:
            return "transformers: not installed where `--peer_python` points: nothing of it was measured."
        return "transformers {version} on torch {torch}, a static cache; compiled: by `reduce-overhead`.".format(
            **self.settings
        )


def find_torch_peer(python: str) -> TorchPeer:
    """Asks an interpreter whether it has transformers and torch.

    Raises:
        InputError: it is no program that can be started.
        BenchError: they are there and fail.
    """
    return TorchPeer(python, settings_of(TorchPeer(python, None).command(), TORCH))
