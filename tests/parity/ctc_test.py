"""Transcriptions of CTC models, computed eagerly, against transformers' pipeline: text, words and their times."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lang_core import EagerExecutionContext, InputError
from tapeline.running.transcribing import CtcTranscriber, Segment, chunks_of
from tests.goldens.speech.ctc_cases import CTC_CASES, FRAMES, SECONDS, read_ctc_goldens, write_ctc_checkpoint
from tests.goldens.speech.files import RATE, sound
from transformer_core.checkpoints import SafetensorsCheckpoint
from transformer_core.models import load_model, weights_of
from transformer_core.models.encoders import SoundModel

_GOLDENS = read_ctc_goldens()["cases"]


class _Eager:
    """A CTC model that computes in NumPy."""

    def __init__(self, model: SoundModel, ctx: EagerExecutionContext) -> None:
        self._model, self._ctx = model, ctx
        self.ratio, self.fewest = model.config.ratio, model.config.fewest
        self.samples = model.config.samples(FRAMES)

    def best(self, values: np.ndarray) -> np.ndarray:
        padded = np.zeros((1, self.samples), np.float32)
        padded[0, : len(values)] = values
        lengths = np.array([len(values)], np.int32)
        logits = self._model.results(self._ctx, self._ctx.constant(padded), self._ctx.constant(lengths))["logits"]
        return logits.numpy()[0, : (len(values) - self.fewest) // self.ratio + 1].argmax(-1)


def _transcribed(name: str, directory: Path, **asked: Any) -> Any:
    case, golden = CTC_CASES[name], _GOLDENS[name]
    write_ctc_checkpoint(directory, case, golden["shapes"], golden["seed"])
    with SafetensorsCheckpoint(directory) as weights:
        model = load_model(directory)
        assert isinstance(model, SoundModel)
        eager = _Eager(model, EagerExecutionContext(weights_of(model, weights)))
        assert eager.samples == SECONDS * RATE
        samples = sound(case.sound)[: case.samples]
        blocks = np.array_split(samples, 7)
        defaults = {"language": None, "task": "transcribe", "timestamps": False, "words": True, "on_segment": None}
        return CtcTranscriber(directory, eager)(lambda: blocks, **{**defaults, **asked})


@pytest.mark.parametrize("name", CTC_CASES)
def test_text_and_words_are_those_of_transformers(name: str, tmp_path: Path) -> None:
    golden, case = _GOLDENS[name], CTC_CASES[name]
    transcription = _transcribed(name, tmp_path)
    assert transcription.text == golden["text"]
    assert [[word.text, word.start, word.end] for word in transcription.words] == golden["words"]
    assert transcription.duration == case.samples / RATE
    [segment] = transcription.segments
    assert (segment.start, segment.end, segment.text) == (0, transcription.duration, golden["text"])


def test_segments_end_at_pauses_and_have_all_of_the_text(tmp_path: Path) -> None:
    heard: list[Segment] = []
    transcription = _transcribed("long", tmp_path, timestamps=True, words=False, on_segment=heard.append)
    assert tuple(heard) == transcription.segments
    assert len(heard) == len({segment.start for segment in heard})
    assert " ".join(segment.text for segment in heard).split() == _GOLDENS["long"]["text"].split()
    assert transcription.words == ()


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"language": "en"}, "language='en': a CTC model writes what it hears in the one language it knows"),
        ({"task": "translate"}, "task='translate': a CTC model writes what it hears"),
    ],
)
def test_what_a_ctc_model_has_not(asked: dict[str, str], message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=message):
        _transcribed("short", tmp_path, **asked)


def test_chunks_meet_whatever_blocks_sound_comes_in() -> None:
    whole = np.arange(103, dtype=np.float32)
    for parts in (1, 2, 9, 103):
        chunks = list(chunks_of(np.array_split(whole, parts), 30, 5))
        assert all(len(chunk) <= 30 for chunk, _, _ in chunks)
        kept = [chunk[left : len(chunk) - right] for chunk, left, right in chunks]
        assert np.array_equal(np.concatenate(kept), whole)
        assert [side[1:] for side in chunks] == [(0, 5), (5, 5), (5, 5), (5, 5), (5, 0)]
    with pytest.raises(InputError, match="the sound has no samples"):
        list(chunks_of([], 30, 5))
