"""/v1/audio/transcriptions and /v1/audio/translations."""

import asyncio
import threading
from time import monotonic
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from tapeline.media.audio import AudioLimits
from tapeline.running.transcribing import Task
from tapeline.server._errors import RequestError
from tapeline.server._form import read_form
from tapeline.server._gone import ClientGoneError, unless_gone
from tapeline.server._records import read_record, read_tolerant
from tapeline.server._requests import TranscriptionRequest, TranslationRequest
from tapeline.server._service import model_of, note, service_of

_MEDIA: Final = {"text": "text/plain", "srt": "text/plain", "vtt": "text/vtt"}
_JSON: Final = "application/json"
_VERBOSE: Final = "verbose_json"
_TIMED: Final = ("srt", "vtt", _VERBOSE)
_WORD: Final = "word"


async def transcriptions(request: Request) -> Response:
    """Turns a sound file into text."""
    return await _transcribed(request, TranscriptionRequest, "transcribe")


async def translations(request: Request) -> Response:
    """Turns a sound file into English text."""
    return await _transcribed(request, TranslationRequest, "translate")


async def _transcribed(request: Request, kind: type[TranscriptionRequest], task: Task) -> Response:
    service = service_of(request)
    texts, audio = await read_form(request, service.options)
    fields = _fields(request, kind, texts)
    model = await model_of(request, service.models.transcription_model, fields.model)
    limits = AudioLimits(max_bytes=service.options.max_audio_bytes, max_seconds=service.options.max_audio_seconds)
    deadline, gone = monotonic() + service.options.request_seconds, threading.Event()

    def check() -> None:
        if gone.is_set():
            raise ClientGoneError("the client has closed the connection")
        if monotonic() > deadline:
            raise RequestError("the transcription took too long: send shorter sound", status=504)

    timed, words = fields.response_format in _TIMED, _WORD in fields.timestamp_granularities
    if words and fields.response_format != _VERBOSE:
        raise RequestError(
            f"timestamp_granularities: words have their times in `response_format` {_VERBOSE} alone; found "
            f"{fields.response_format}"
        )
    future = model.transcribe(audio, fields.language, limits, timestamps=timed, words=words, check=check, task=task)
    try:
        transcription = await unless_gone(request.receive, asyncio.wrap_future(future))
    except (ClientGoneError, asyncio.CancelledError):
        gone.set()
        raise
    note(request, model=model.name, audio_seconds=round(transcription.duration, 3))
    text = transcription.format(fields.response_format)
    return Response(text, media_type=_MEDIA.get(fields.response_format, _JSON))


def _fields(request: Request, kind: type[TranscriptionRequest], texts: dict[str, Any]) -> TranscriptionRequest:
    service = service_of(request)
    if service.options.strict_fields:
        return read_record(kind, texts)
    fields, ignored = read_tolerant(kind, texts)
    service.note_ignored(request, ignored)
    return fields
