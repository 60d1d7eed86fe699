"""The peers of pictures, PyTorch and ONNX Runtime, in whatever interpreter has them."""

from collections.abc import Mapping
from typing import ClassVar, Final

from tools.benching.suites._peer import PeerProgram, settings_of

PICTURE_PEER: Final = "onnxruntime"


class PicturePeer(PeerProgram):
    """transformers on PyTorch, and what ``torch.onnx.export`` makes of its model in ONNX Runtime."""

    __slots__ = ()
    file = "picture_worker.py"
    SYSTEMS: ClassVar[Mapping[str, str]] = {"PyTorch": "torch", "ONNX Runtime": "onnxruntime"}

    def about(self) -> str:
        """Returns what a reader has to know of it."""
        if self.settings is None:
            return f"{PICTURE_PEER}: not installed where `--peer_python` points: nothing of it was measured."
        versions = ", ".join(f"{name} {version}" for name, version in self.settings.items())
        return f"Peers: {versions}; as many threads as cores."


def find_picture_peer(python: str) -> PicturePeer:
    """Asks an interpreter whether it has transformers, onnx and ONNX Runtime.

    Raises:
        InputError: it is no program that can be started.
        BenchError: they are there and fail.
    """
    return PicturePeer(python, settings_of(PicturePeer(python, None).command(), PICTURE_PEER))
