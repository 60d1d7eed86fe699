"""Sound in, text out: tools:transcribe and ``LoadedModel.transcribe`` on a tiny Whisper, as transformers has it."""

import json
import shutil
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import openai
import pytest

import tapeline
from lang_core import ConfigError, InputError
from tapeline.bundle import Bundle
from tapeline.media.audio import AudioLimits
from tapeline.running.transcribing import Guards, Segment
from tapeline.server import Loading, ModelSource, load_bundle
from tapeline.server._server_testing import running
from tests.goldens.speech.cases import BOUNDS, ENGLISH, GENERATION, SPEECH_CASES, WORD_CASES
from tests.goldens.speech.ctc_cases import CTC_CASES, FRAMES, read_ctc_goldens, write_ctc_checkpoint
from tests.goldens.speech.files import (
    RATE,
    SPEECH,
    read_speech_goldens,
    read_word_goldens,
    sound,
    write_speech_checkpoint,
)
from tests.product import _bundles
from tests.product._bundles import Finished, export, invoke, refused
from transformer_core.models import load_model

demo_layer = _bundles.demo_layer

Transcribing = Callable[..., Finished]

_GOLDENS = read_speech_goldens()
_WORDS = read_word_goldens()
_TIME = 1e-6  # seconds


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    folder = tmp_path_factory.mktemp("speech")
    (folder / "model").mkdir()
    write_speech_checkpoint(folder / "model", _GOLDENS["shapes"])
    return Bundle(export(folder / "model", folder / "bundle", sequence=4))


@pytest.fixture(scope="module")
def english(bundle: Bundle) -> Bundle:
    """The same model with the settings of one for English alone."""
    copy = bundle.path.parent / "english"
    shutil.copytree(bundle.path, copy)
    (copy / "generation_config.json").write_text(json.dumps(ENGLISH))
    return Bundle(copy)


@pytest.mark.parametrize("name", SPEECH_CASES)
def test_tokens_times_and_text_are_those_of_transformers(bundle: Bundle, english: Bundle, name: str) -> None:
    case, golden = SPEECH_CASES[name], _GOLDENS["cases"][name]
    samples = sound(case.sound)
    heard: list[Segment] = []
    with tapeline.load(bundle if case.generation is GENERATION else english, verify="off") as model:
        transcription = model.transcribe(samples, **case.asked, on_segment=heard.append)
    assert [list(segment.token_ids) for segment in transcription.segments] == [row[2] for row in golden["segments"]]
    assert transcription.text == golden["text"]
    assert transcription.duration == len(samples) / RATE
    assert transcription.language in (("en", "de", "fr", "yue") if case.generation is GENERATION else ("en",))
    assert tuple(heard) == transcription.segments
    for segment, (start, end, _) in zip(transcription.segments, golden["segments"], strict=True):
        assert segment.start == pytest.approx(min(start, transcription.duration), abs=_TIME)
        assert segment.end == pytest.approx(min(end, transcription.duration), abs=_TIME)


@pytest.mark.parametrize("name", WORD_CASES)
def test_words_and_their_times_are_those_of_transformers(bundle: Bundle, english: Bundle, name: str) -> None:
    case = SPEECH_CASES[name]
    asked = {**case.asked, "timestamps": False}
    with tapeline.load(bundle if case.generation is GENERATION else english, verify="off") as model:
        transcription = model.transcribe(sound(case.sound), **asked, word_timestamps=True)
    words = [[word.text, word.start, word.end] for word in transcription.words]
    last = transcription.duration
    expected = [[text, min(start, last), min(end, last)] for text, start, end in _WORDS["words"][name]]
    assert words == [[text, pytest.approx(start), pytest.approx(end)] for text, start, end in expected]


def test_guards_leave_out_windows_as_transformers_does(bundle: Bundle) -> None:
    guarded, case = _WORDS["guarded"], SPEECH_CASES["long_detected"]
    assert [row[3] for row in guarded["figures"]] == [True, False, False]
    with tapeline.load(bundle) as model:
        bounds: Any = BOUNDS
        once = Guards(temperatures=(0.0,), **bounds)
        transcription = model.transcribe(sound(case.sound), guards=once)
        assert [list(segment.token_ids) for segment in transcription.segments] == guarded["segments"]
        drawn = Guards(temperatures=(0.0, 0.7), **{**bounds, "most_silence": 1.0})
        again = model.transcribe(sound(case.sound), guards=drawn)
        assert again == model.transcribe(sound(case.sound), guards=drawn)  # draws are the same in every run
        assert again.segments[0] != model.transcribe(sound(case.sound)).segments[0]


def test_words_need_alignment_heads(bundle: Bundle, tmp_path: Path) -> None:
    model = tmp_path / "model"
    shutil.copytree(bundle.path.parent / "model", model)
    fields = {name: value for name, value in GENERATION.items() if name != "alignment_heads"}
    (model / "generation_config.json").write_text(json.dumps(fields))
    assert "align" not in load_model(model).ENTRY_POINTS
    fields["alignment_heads"] = [[7, 0]]  # its teacher's
    (model / "generation_config.json").write_text(json.dumps(fields))
    assert "align" not in load_model(model).ENTRY_POINTS
    fields["alignment_heads"] = [[1, -1]]
    (model / "generation_config.json").write_text(json.dumps(fields))
    with pytest.raises(ConfigError, match="'alignment_heads': expected pairs of a layer and a head, each 0 or more"):
        load_model(model)


@pytest.fixture
def transcribing(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Transcribing:
    monkeypatch.setenv("BUILD_WORKING_DIRECTORY", str(SPEECH.parent))
    return lambda bundle, *flags: invoke("transcribe", capsys, f"--bundle={bundle.path}", *flags)


def test_the_command_prints_each_form(bundle: Bundle, transcribing: Transcribing) -> None:
    timed, plain = _GOLDENS["cases"]["timed"], _GOLDENS["cases"]["plain"]
    assert transcribing(bundle, "--audio=speech.flac") == Finished(0, plain["text"].strip() + "\n", "")
    lines = transcribing(bundle, "--audio=speech.flac", "--timestamps").out.splitlines()
    assert len(lines) == len(timed["segments"])
    assert lines[0].startswith("[00:00:00.")
    srt = transcribing(bundle, "--audio=speech.flac", "--format=srt").out
    assert srt.startswith("1\n00:00:00,")
    assert srt.count(" --> ") == len(timed["segments"])
    verbose = json.loads(
        transcribing(bundle, "--audio=speech.flac", "--format=verbose_json", "--timestamps", "--language=fr").out
    )
    assert verbose["language"] == "french"
    assert verbose["duration"] == pytest.approx(2.022, abs=1e-3)


def test_a_file_its_bytes_and_its_samples_are_the_same_sound(bundle: Bundle) -> None:
    samples = sound("speech")
    with tapeline.load(bundle) as model:
        expected = model.transcribe(samples)
        assert model.transcribe(SPEECH) == model.transcribe(str(SPEECH)) == expected
        assert model.transcribe(SPEECH.read_bytes(), limits=AudioLimits(max_bytes=2**16)) == expected
        assert model.transcribe(samples, rate=2 * RATE).duration == pytest.approx(expected.duration / 2, abs=1e-3)
        assert expected.language in ("en", "de", "fr", "yue")


def test_what_on_segment_raises_ends_the_transcription(bundle: Bundle) -> None:
    def stop(segment: Segment) -> None:
        raise KeyboardInterrupt(segment.text)

    with tapeline.load(bundle) as model:
        with pytest.raises(KeyboardInterrupt):
            model.transcribe(sound("long"), on_segment=stop)
        assert model.transcribe(sound("speech")).text == _GOLDENS["cases"]["plain"]["text"]


def test_a_long_transcription_does_not_hold_the_model(bundle: Bundle) -> None:
    """While a thread is between two windows, another one transcribes; both have the text that they have alone."""
    short: list[str] = []

    with tapeline.load(bundle) as model:
        expected = model.transcribe(sound("long"))

        def between(segment: Segment) -> None:
            if not short:
                thread = threading.Thread(target=lambda: short.append(model.transcribe(sound("speech")).text))
                thread.start()
                thread.join(600)
                assert short, f"the other transcription waits for the one of {segment.text!r}"

        assert model.transcribe(sound("long"), on_segment=between) == expected
    assert short == [_GOLDENS["cases"]["plain"]["text"]]


def test_check_is_called_while_sound_is_decoded_and_for_each_token(bundle: Bundle) -> None:
    calls: list[None] = []

    def check() -> None:
        calls.append(None)
        if len(calls) == 3:
            raise TimeoutError("late")

    with tapeline.load(bundle) as model:
        with pytest.raises(TimeoutError, match="late"):
            model.transcribe(SPEECH, check=check)
        transcription = model.transcribe(sound("speech"), check=lambda: calls.append(None))
        assert len(calls) - 3 >= sum(len(segment.token_ids) for segment in transcription.segments)


def test_a_transcription_that_is_not_wanted_any_more_does_not_use_the_model(
    bundle: Bundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client leaves while its transcription waits for the model: the transcription ends without a window."""

    def gone() -> None:
        raise TimeoutError("the client has left")

    with tapeline.load(bundle) as model:
        with monkeypatch.context() as patches:
            patches.setattr("tapeline.running._speech.SpeechBundle.encode", lambda *_: pytest.fail("encoded"))
            with pytest.raises(TimeoutError, match="has left"):
                model.transcribe(sound("speech"), check=gone)
        assert model.transcribe(sound("speech"), check=lambda: None).text == _GOLDENS["cases"]["plain"]["text"]


def test_bad_input(bundle: Bundle, english: Bundle, transcribing: Transcribing, tmp_path: Path) -> None:
    (tmp_path / "cut.flac").write_bytes(SPEECH.read_bytes()[:9000])
    refused(transcribing(bundle, "--audio=absent.wav"), "absent.wav: cannot be read: No such file")
    refused(transcribing(bundle, f"--audio={tmp_path}/cut.flac"), "cut.flac: damaged or cut off")
    refused(transcribing(bundle, "--audio=transcriptions.json"), "neither a WAV nor a FLAC file")
    refused(transcribing(bundle, "--audio=speech.flac", "--language=elvish"), "available: de, en, fr, yue")
    refused(
        transcribing(english, "--audio=speech.flac", "--task=translate", "--verify_files=off"),
        "task='translate': not found; available",
    )
    with tapeline.load(bundle) as model:
        with pytest.raises(InputError, match="audio: 40,782 bytes, expected at most 9"):
            model.transcribe(SPEECH.read_bytes(), limits=AudioLimits(max_bytes=9))
        with pytest.raises(InputError, match=r"lasts 2\.0 seconds or more, expected at most 1\.5"):
            model.transcribe(SPEECH, limits=AudioLimits(max_seconds=1.5))
        with pytest.raises(InputError, match=r"samples are float32\[2, 9\]"):
            model.transcribe(np.zeros((2, 9), np.float32))


def test_bundles_that_take_no_sound(
    bundle: Bundle, demo_layer: Path, transcribing: Transcribing, tmp_path: Path
) -> None:
    refused(
        transcribing(Bundle(demo_layer), "--audio=speech.flac"),
        "and none that takes sound: transcription needs a bundle of a Whi",
    )
    other, changed = tmp_path / "other", ("--audio=speech.flac", "--verify_files=off")
    shutil.copytree(bundle.path, other)
    settings = json.loads((other / "preprocessor_config.json").read_text())
    (other / "preprocessor_config.json").write_text(json.dumps({**settings, "feature_size": 128}))
    refused(transcribing(Bundle(other), *changed), "128 bands and 3000 frames, and the model takes 80 and")
    (other / "preprocessor_config.json").unlink()
    refused(transcribing(Bundle(other), *changed), "it says how sound becomes features: copy it into")


def test_a_ctc_model_gives_text_words_and_times(transcribing: Transcribing, tmp_path: Path) -> None:
    case, golden = CTC_CASES["long"], read_ctc_goldens()["cases"]["long"]
    (tmp_path / "model").mkdir()
    write_ctc_checkpoint(tmp_path / "model", case, golden["shapes"], golden["seed"])
    bundle = Bundle(export(tmp_path / "model", tmp_path / "bundle", sequence=FRAMES))
    with tapeline.load(bundle) as model:
        transcription = model.transcribe(sound("long")[: case.samples], word_timestamps=True)
    assert transcription.text == golden["text"]
    assert [[word.text, word.start, word.end] for word in transcription.words] == golden["words"]
    lines = transcribing(bundle, "--audio=speech.flac", "--word_timestamps").out.splitlines()
    assert lines[0].startswith("[00:00:00.0")
    assert all(" --> 00:00:0" in line for line in lines)
    refused(
        transcribing(bundle, "--audio=speech.flac", "--word_timestamps", "--format=srt"),
        "--word_timestamps: srt has no words: choose --format text or verbose_json",
    )
    refused(transcribing(bundle, "--audio=speech.flac", "--language=en"), "a CTC model writes what it hears in the one")
    served = load_bundle("letters", bundle, Loading())
    try:
        assert type(served).__name__ == "TranscriptionModel"
    finally:
        served.close()


def test_a_bundle_has_the_settings_of_a_processor(bundle: Bundle, tmp_path: Path) -> None:
    """Newer checkpoints keep the extractor's settings in processor_config.json."""
    model = tmp_path / "model"
    shutil.copytree(bundle.path.parent / "model", model)
    settings = json.loads((model / "preprocessor_config.json").read_text())
    (model / "preprocessor_config.json").unlink()
    (model / "processor_config.json").write_text(json.dumps({"feature_extractor": settings}))
    exported = Bundle(export(model, tmp_path / "bundle", sequence=4, target=()))
    assert json.loads((exported.path / "processor_config.json").read_text())["feature_extractor"] == settings


def test_the_server_transcribes_for_openais_client(bundle: Bundle) -> None:
    source = ModelSource("whisper", lambda: load_bundle("whisper", bundle, Loading()))
    plain, timed = _GOLDENS["cases"]["plain"], _GOLDENS["cases"]["timed"]
    with running([source]) as server:
        client = openai.OpenAI(base_url=f"http://127.0.0.1:{server.port}/v1", api_key="none", max_retries=0)
        ask = partial(client.audio.transcriptions.create, model="whisper", file=SPEECH)
        assert ask().text == plain["text"].strip()
        verbose = ask(response_format="verbose_json", timestamp_granularities=["segment"])
        assert verbose.duration == pytest.approx(2.022, abs=1e-3)
        assert [segment.tokens for segment in verbose.segments or []] == [row[2] for row in timed["segments"]]
        assert ask(response_format="text") == plain["text"].strip() + "\n"
        assert ask(response_format="srt").count(" --> ") == len(timed["segments"])
        with pytest.raises(openai.BadRequestError, match="language='elvish': not found; available: de, en, fr, yue"):
            ask(language="elvish")
        with pytest.raises(openai.BadRequestError, match="neither a WAV nor a FLAC file"):
            ask(file=("a.mp3", b"ID3" + bytes(99)))
        with pytest.raises(openai.BadRequestError, match="model 'whisper' generates no text: name one that does"):
            client.completions.create(model="whisper", prompt="It was")
        client.close()
