"""Ctrl-C on a terminal while ``rerank`` and ``transcribe`` work."""

from pathlib import Path

import numpy as np
import pytest
import soundfile

from tests.goldens.speech.files import RATE, read_speech_goldens, sound, write_speech_checkpoint
from tests.interrupts._terminal import on_terminal
from tests.product._bundles import export
from tests.product._rankers import write_ranker


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a reranker, a speech model, and inputs that take minutes."""
    folder = tmp_path_factory.mktemp("home")
    export(write_ranker(folder / "ranking_model"), folder / "ranking", batch=2, sequence=12)
    (folder / "documents.txt").write_text("w6 w7 w8\n" * 400_000)
    (folder / "speech_model").mkdir()
    write_speech_checkpoint(folder / "speech_model", read_speech_goldens()["shapes"])
    export(folder / "speech_model", folder / "speech", sequence=4)
    samples = sound("speech")
    soundfile.write(folder / "sound.wav", np.tile(samples, 600 * RATE // len(samples)), RATE)
    return folder


def test_a_transcription_is_interrupted(home: Path) -> None:
    with on_terminal(home, "transcribe", "--bundle=speech", "--audio=sound.wav", "--timestamps") as terminal:
        terminal.wait_for(r"\[00:00:\d\d")  # the first segment
        terminal.press()
        end = terminal.end()
    assert end.is_clean, end


def test_a_ranking_is_interrupted(home: Path) -> None:
    with on_terminal(home, "rerank", "--bundle=ranking", "--query=w5", "--documents=documents.txt") as terminal:
        assert terminal.read_for(2.0)  # it prints nothing before the end
        terminal.press()
        end = terminal.end()
    assert end.is_clean, end
