"""The peers of embeddings, sentence-transformers and ONNX Runtime, in whatever interpreter has them."""

from typing import Final

from tools.benching.suites._peer import PeerProgram, settings_of

SENTENCE_PEERS: Final = ("sentence_transformers", "onnxruntime")
_SYSTEMS: Final = {
    "sentence_transformers": {"sentence-transformers": "torch"},
    "onnxruntime": {
        "sentence-transformers": "torch",
        "ONNX Runtime": "onnxruntime",
        "ONNX Runtime, int8": "onnxruntime-int8",
    },
}


class SentencePeer(PeerProgram):
    """sentence-transformers, and ONNX Runtime where the interpreter is asked for it."""

    __slots__ = ()
    file = "sentence_worker.py"

    @property
    def systems(self) -> dict[str, str]:
        """The program's systems by the names of their rows; none where packages are missing."""
        if self.settings is None:
            return {}
        return _SYSTEMS["onnxruntime" if "onnxruntime" in self.settings else "sentence_transformers"]

    def about(self) -> str:
        """Returns what a reader has to know of it."""
        if self.settings is None:
            return "Peers: not installed where `--peer_python` points: nothing of them was measured."
        versions = ", ".join(f"{name} {version}" for name, version in self.settings.items())
        return f"Peers: {versions}; batches of 32 texts sorted by length, as many threads as cores."


def find_sentence_peer(name: str, python: str) -> SentencePeer:
    """Asks an interpreter whether it has sentence-transformers, and with ``onnxruntime`` that and onnx as well.

    Raises:
        InputError: it is no program that can be started.
        BenchError: they are there and fail.
    """
    needs = {"needs": ["onnx", "onnxruntime"]} if name == "onnxruntime" else {}
    return SentencePeer(python, settings_of(SentencePeer(python, None).command(**needs), name))
