import json

import pytest

from lang_core import ChoiceError
from tapeline.running.transcribing import Segment, Transcription

_TRANSCRIPTION = Transcription(
    text=" Hello --> you.\n\nÄh, bye.",
    segments=(
        Segment(start=0.0, end=1.5, text=" Hello --> you.\n\n", token_ids=(90, 1, 2, 99)),
        Segment(start=1.5, end=2.0, text=" ", token_ids=()),
        Segment(start=3661.0, end=3662.2599, text="Äh, bye.", token_ids=(3,)),
    ),
    language="de",
    task="transcribe",
    duration=3663.0,
)


def test_text_and_json() -> None:
    assert _TRANSCRIPTION.format("text") == "Hello --> you.\n\nÄh, bye.\n"
    assert json.loads(_TRANSCRIPTION.format("json")) == {"text": "Hello --> you.\n\nÄh, bye."}


def test_subtitles_leave_out_what_would_end_a_cue() -> None:
    assert _TRANSCRIPTION.format("srt") == (
        "1\n00:00:00,000 --> 00:00:01,500\nHello -> you.\n\n2\n01:01:01,000 --> 01:01:02,260\nÄh, bye.\n\n"
    )
    assert _TRANSCRIPTION.format("vtt") == (
        "WEBVTT\n\n00:00:00.000 --> 00:00:01.500\nHello -> you.\n\n01:01:01.000 --> 01:01:02.260\nÄh, bye.\n\n"
    )


def test_verbose_json_has_the_fields_of_openai() -> None:
    fields = json.loads(_TRANSCRIPTION.format("verbose_json"))
    segments = fields.pop("segments")
    expected = {"task": "transcribe", "language": "german", "duration": 3663.0, "text": "Hello --> you.\n\nÄh, bye."}
    assert fields == expected
    assert segments[0] == {"id": 0, "start": 0.0, "end": 1.5, "text": " Hello --> you.\n\n", "tokens": [90, 1, 2, 99]}


def test_another_form_is_refused() -> None:
    with pytest.raises(ChoiceError, match="expected one of text, json, verbose_json, srt, vtt; found 'xml'"):
        _TRANSCRIPTION.format("xml")  # type: ignore[arg-type]
