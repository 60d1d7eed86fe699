"""The peer of speech, faster-whisper, in whatever interpreter has it."""

from typing import Final

from tools.benching.suites._peer import PeerProgram, settings_of

SPEECH_PEER: Final = "faster-whisper"


class SpeechPeer(PeerProgram):
    """faster-whisper on CTranslate2."""

    __slots__ = ()
    file = "faster_whisper_worker.py"

    def about(self) -> str:
        """Returns what a reader has to know of it."""
        if self.settings is None:
            return f"{SPEECH_PEER}: not installed where `--peer_python` points: nothing of it was measured."
        versions = ", ".join(f"{name} {version}" for name, version in self.settings.items())
        return f"Peer: {versions}; greedy, without timestamps, as many threads as cores."


def find_speech_peer(python: str) -> SpeechPeer:
    """Asks an interpreter whether it has faster-whisper.

    Raises:
        InputError: it is no program that can be started.
        BenchError: it is there and fails.
    """
    return SpeechPeer(python, settings_of(SpeechPeer(python, None).command(), SPEECH_PEER))
