"""/v1/audio/transcriptions over real sockets, with a reader that says what it was asked for."""

import io
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import soundfile

from lang_core import InputError
from tapeline.media.audio import AudioLimits, read_blocks
from tapeline.running.transcribing import Segment, Transcription, Word
from tapeline.server._models import ModelSource
from tapeline.server._options import ServerOptions
from tapeline.server._server_testing import Answered, RunningServer, running
from tapeline.server._transcription_model import MOST_TRANSCRIPTIONS, TranscriptionModel

_PATH = "/v1/audio/transcriptions"
_RATE = 1000  # of a small file
_BOUNDARY = "----boundary"
_TYPE = {"content-type": f"multipart/form-data; boundary={_BOUNDARY}"}


class Counting:
    """Reader that hears seconds: a segment for each, in ``pace`` seconds."""

    def __init__(self, pace: float = 0.0) -> None:
        self.pace, self.heard = pace, list[float]()

    def transcribe(
        self,
        audio: bytes,
        *,
        language: str | None,
        task: Any,
        timestamps: bool,
        word_timestamps: bool,
        limits: AudioLimits,
        on_segment: Callable[[Segment], object],
        check: Callable[[], object],
    ) -> Transcription:
        if language == "elvish":
            raise InputError("language='elvish': not found; available: en")
        samples = sum(map(len, read_blocks(audio, 16_000, limits, check=check)))
        segments = [*self._segments(samples // 16_000, on_segment)]
        text = f" {language} {task} {timestamps}"
        words = [Word(start=second.start, end=second.end, text=second.text) for second in segments if word_timestamps]
        whole = {"language": language, "task": task, "duration": float(len(segments)), "words": tuple(words)}
        return Transcription(text=text, segments=tuple(segments), **whole)

    def _segments(self, seconds: int, on_segment: Callable[[Segment], object]) -> Iterator[Segment]:
        for second in range(seconds):
            time.sleep(self.pace)
            self.heard.append(second)
            segment = Segment(start=second, end=second + 1.0, text=f" {second}", token_ids=(second,))
            on_segment(segment)
            yield segment

    def close(self) -> None:
        pass


def _sound(seconds: int) -> bytes:
    file = io.BytesIO()
    soundfile.write(file, np.zeros(seconds * _RATE), _RATE, format="WAV")
    return file.getvalue()


def _form(file: bytes | None = None, **fields: str | list[str]) -> bytes:
    pairs = [
        (name, value) for name, given in fields.items() for value in ([given] if isinstance(given, str) else given)
    ]
    parts = [f'name="{name}"\r\n\r\n{value}'.encode() for name, value in pairs]
    if file is not None:
        parts.append(b'name="file"; filename="a.wav"\r\nContent-Type: audio/wav\r\n\r\n' + file)
    head = f"--{_BOUNDARY}\r\nContent-Disposition: form-data; ".encode()
    return b"".join(head + part + b"\r\n" for part in parts) + f"--{_BOUNDARY}--\r\n".encode()


@pytest.fixture(scope="module")
def slow() -> Counting:
    return Counting(0.05)


@pytest.fixture(scope="module")
def server(slow: Counting) -> Iterator[RunningServer]:
    readers = {"ears": Counting(), "slow": slow}
    models = [TranscriptionModel(name=name, created=1, context=448, reader=reader) for name, reader in readers.items()]
    options = ServerOptions(port=0, max_audio_bytes=300_000, max_audio_seconds=120)
    with running([ModelSource(model.name, lambda model=model: model) for model in models], options) as running_server:
        yield running_server


def _ask(server: RunningServer, seconds: int = 2, **fields: Any) -> Answered:
    return server.request(_PATH, _form(_sound(seconds), **{"model": "ears", **fields}), headers=_TYPE)


def test_forms_of_answers(server: RunningServer) -> None:
    assert _ask(server).json == {"text": "None transcribe False"}
    assert _ask(server, language="en", temperature="0", stream="false").json == {"text": "en transcribe False"}
    text = _ask(server, response_format="text")
    assert (text.body, text.headers["content-type"]) == (b"None transcribe False\n", "text/plain; charset=utf-8")
    fields: dict[str, Any] = {"response_format": "verbose_json", "timestamp_granularities[]": ["segment"]}
    verbose = _ask(server, **fields).json
    assert (verbose["text"], verbose["duration"], len(verbose["segments"])) == ("None transcribe True", 2.0, 2)
    assert "words" not in verbose
    fields["timestamp_granularities[]"] = ["word", "segment"]
    words = _ask(server, **fields).json["words"]
    assert words == [{"word": "0", "start": 0, "end": 1.0}, {"word": "1", "start": 1, "end": 2.0}]
    assert _ask(server, response_format="srt").body.startswith(b"1\n00:00:00,000 --> 00:00:01,000\n0\n\n2\n")
    assert _ask(server, response_format="vtt").headers["content-type"] == "text/vtt; charset=utf-8"
    assert server.request("/v1/models/ears").json["task"] == "transcribe"


def test_unknown_fields_are_named(server: RunningServer) -> None:
    assert _ask(server, languages="en").headers["x-ignored-fields"] == "languages"


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"response_format": "xml"}, 'response_format: expected "json" or "text" or'),
        ({"temperature": "0.5"}, "temperature: expected a number"),
        ({"temperature": "warm"}, "temperature: expected a number"),
        ({"stream": "true"}, "stream: expected false; found true"),
        ({"prompt": "names"}, "prompt: not supported: windows begin without a text before them"),
        ({"timestamp_granularities[]": ["char"]}, 'expected "segment" or "word"; found "char"'),
        ({"timestamp_granularities[]": ["word"]}, "words have their times in `response_format` verbose_json alone"),
        ({"language": "elvish"}, "language='elvish': not found; available: en"),
        ({"model": "absent"}, "model 'absent' not found; available: ears, slow"),
    ],
)
def test_fields_that_are_refused(server: RunningServer, fields: dict[str, Any], message: str) -> None:
    refused = _ask(server, **fields)
    assert refused.status == (404 if "model" in fields else 400)
    with pytest.raises(InputError, match=message):
        raise InputError(refused.error["message"])


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        (_form(model="ears"), 400, "file: this field is required: a WAV or FLAC file"),
        (_form(b"hello, world", model="ears"), 400, "audio: neither a WAV nor a FLAC file"),
        (_form(_sound(2)[:-9], model="ears"), 400, "audio: cut off: its last 9 bytes of samples are missing"),
        (_form(_sound(121), model="ears"), 400, "audio: lasts 121.0 seconds or more, expected at most 120.0"),
        (_form(b"RIFF" + bytes(350_000), model="ears"), 400, "audio: 350,004 bytes, expected at most 300,000"),
        (bytes(1_400_000), 413, "the body is larger than 1348576 bytes"),
        (
            _form(_sound(1), model="a" * 70_000),
            400,
            "the body is no form that can be read: Part exceeded maximum size",
        ),
        (_form(_sound(1), **{f"x{number}": "" for number in range(40)}), 400, "Too many fields"),
        (_form(_sound(1))[:-200], 400, "the body is no form that can be read"),
        (b"no form", 400, "the body is no form that can be read"),
        (b"", 400, "the body is no form that can be read: it does not end with its boundary"),
    ],
)
def test_bodies_that_are_refused(server: RunningServer, body: bytes, status: int, message: str) -> None:
    refused = server.request(_PATH, body, headers=_TYPE)
    assert refused.status == status, refused.body
    assert message in refused.error["message"]


def test_a_form_that_cannot_be_read_is_no_line_of_the_parsers_log(
    server: RunningServer, caplog: pytest.LogCaptureFixture
) -> None:
    body = f"--{_BOUNDARY}\r\nContent-\x01Disposition: form-data\r\n\r\na\r\n--{_BOUNDARY}--\r\n".encode()
    assert server.request(_PATH, body, headers=_TYPE).status == 400
    assert not [record for record in caplog.records if record.name.startswith("python_multipart")]


def test_a_form_must_say_so(server: RunningServer) -> None:
    refused = server.request(_PATH, _form(_sound(1)))
    assert (refused.status, refused.error["code"]) == (415, "wrong_type")
    refused = server.request(_PATH, _form(_sound(1)), headers={"content-type": "multipart/form-data"})
    assert (refused.status, refused.error["code"]) == (400, "invalid_form")


def test_a_transcription_that_takes_too_long_is_given_up() -> None:
    reader = Counting(0.05)
    model = TranscriptionModel(name="ears", created=1, context=448, reader=reader)
    with running([ModelSource("ears", lambda: model)], ServerOptions(port=0, request_seconds=0.2)) as server:
        late = _ask(server, 100)
    assert (late.status, late.error["message"]) == (504, "the transcription took too long: send shorter sound")
    assert len(reader.heard) < 100


def test_a_client_that_has_gone_frees_the_model(server: RunningServer, slow: Counting) -> None:
    slow.heard.clear()
    body = _form(_sound(100), model="slow")
    head = f"POST {_PATH} HTTP/1.1\r\nhost: localhost\r\ncontent-type: {_TYPE['content-type']}\r\n"
    with server.socket() as connection:
        connection.sendall(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
        while not slow.heard:
            time.sleep(0.01)
        connection.shutdown(socket.SHUT_RDWR)
    assert _ask(server, 1, model="slow").status == 200
    assert len(slow.heard) < 100


def test_the_deadline_holds_while_a_file_is_decoded() -> None:
    """An hour of silence takes some 100 KB: the time goes into decoding, before there is any segment."""
    reader = Counting()
    model = TranscriptionModel(name="ears", created=1, context=448, reader=reader)
    options = ServerOptions(port=0, request_seconds=1e-3, max_audio_seconds=3600)
    file = io.BytesIO()
    with soundfile.SoundFile(file, "w", 48_000, 1, "PCM_16", format="FLAC") as sound:
        for _ in range(120):
            sound.write(np.zeros(48_000, np.int16))
    with running([ModelSource("ears", lambda: model)], options) as server:
        late = server.request(_PATH, _form(file.getvalue(), model="ears"), headers=_TYPE)
    assert (late.status, late.error["message"]) == (504, "the transcription took too long: send shorter sound")
    assert not reader.heard


class Gated(Counting):
    """Reader whose transcriptions wait until they may end; it counts those that have begun."""

    def __init__(self) -> None:
        super().__init__()
        self.begun, self.gate = threading.Semaphore(0), threading.Event()

    def transcribe(self, audio: bytes, **options: Any) -> Transcription:
        self.begun.release()
        self.gate.wait()
        return super().transcribe(audio, **options)


def test_transcriptions_wait_for_no_other_request() -> None:
    """Fills a model with transcriptions: one more is refused, and the threads of other requests are free."""
    reader = Gated()
    model = TranscriptionModel(name="ears", created=1, context=448, reader=reader)
    free = TranscriptionModel(name="free", created=1, context=448, reader=Counting())
    answers: list[Answered] = []
    sources = [ModelSource("ears", lambda: model), ModelSource("free", lambda: free)]
    with running(sources, ServerOptions(port=0)) as server:
        threads = [threading.Thread(target=lambda: answers.append(_ask(server, 1))) for _ in range(MOST_TRANSCRIPTIONS)]
        for thread in threads:
            thread.start()
        for _ in threads:
            reader.begun.acquire()
        refused = _ask(server, 1)
        assert (refused.status, refused.headers["retry-after"]) == (429, "1")
        assert _ask(server, 1, model="free").status == 200
        reader.gate.set()
        for thread in threads:
            thread.join()
    assert [answer.status for answer in answers] == [200] * MOST_TRANSCRIPTIONS
