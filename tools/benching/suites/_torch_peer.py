"""The peer of the engines, transformers on torch, in whatever interpreter has it."""

from typing import Final

from tools.benching.suites._peer import PeerProgram, settings_of

TORCH: Final = "transformers"


class TorchPeer(PeerProgram):
    """transformers."""

    __slots__ = ()
    file = "transformers_worker.py"

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
