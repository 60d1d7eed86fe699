"""Application in this process, with a model that says what a script says; requests without sockets."""

import asyncio
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from starlette.types import Message, Scope

from tapeline.media.audio import AudioLimits, read_blocks
from tapeline.running.transcribing import Segment, Transcription
from tapeline.server._app import create_app
from tapeline.server._embedding_model import EmbeddingModel
from tapeline.server._log import Log
from tapeline.server._models import Models, ModelSource
from tapeline.server._options import ServerOptions
from tapeline.server._script_slots_testing import ScriptSlots
from tapeline.server._scripted_server_testing import TEXT, Lengths
from tapeline.server._server_testing import VOCABULARY, text_model
from tapeline.server._service import Service
from tapeline.server._transcription_model import TranscriptionModel

_SECONDS: Final = 30.0  # after which a request that is not answered counts as one that hangs


class _Failures(Log):
    """Log that keeps the errors behind statuses of 500."""

    errors: list[BaseException]

    def failure(self, event: str, error: BaseException, *, of_request: bool = False, **fields: Any) -> None:
        """Keeps an error, and writes its line."""
        self.errors.append(error)
        super().failure(event, error, of_request=of_request, **fields)


class _Ears:
    """Speech model that decodes the sound, and hears nothing but its length."""

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
        """Returns a segment of the whole length."""
        seconds = sum(map(len, read_blocks(audio, 16_000, limits, check=check))) / 16_000
        segment = Segment(start=0.0, end=seconds, text=" something", token_ids=(1,))
        on_segment(segment)
        return Transcription(text=segment.text, segments=(segment,), language=language, task=task, duration=seconds)

    def close(self) -> None:
        """Has nothing to close."""


class InProcessServer:
    """Application with the models ``demo``, ``lengths`` and ``ears``, and one loop for all requests.

    Args:
        directory: where files of the model are written.
    """

    def __init__(self, directory: Path) -> None:
        script = ScriptSlots([0] * 8, VOCABULARY)
        model = text_model(directory, script)
        script = ScriptSlots(model.tokenizer.encode(TEXT) * 3, VOCABULARY)
        model.close()
        text = text_model(directory, script)
        embedder = EmbeddingModel(name="lengths", created=2, context=16, embedder=Lengths())
        ears = TranscriptionModel(name="ears", created=3, context=448, reader=_Ears())
        self._lines = io.StringIO()
        self._log = _Failures(self._lines)
        self._log.errors = []
        self._models = models = Models(
            [ModelSource(one.name, lambda one=one: one) for one in (text, embedder, ears)], self._log
        )
        models.load()
        self._app = create_app(Service(models, ServerOptions(port=0, max_body_bytes=100_000), self._log))
        self._loop = asyncio.new_event_loop()

    def close(self) -> None:
        """Frees the models and the loop."""
        self._models.close(0)
        self._loop.run_until_complete(self._loop.shutdown_default_executor())
        self._loop.close()

    def take_log(self) -> str:
        """Returns what was logged since the last call."""
        text = self._lines.getvalue()
        self._lines.seek(0)
        self._lines.truncate()
        return text

    def ask(self, path: str, body: bytes, content_type: str = "application/json") -> tuple[int, bytes]:
        """Returns status and body of an answer. Raises the error behind a status of 500."""
        return self._loop.run_until_complete(asyncio.wait_for(self._ask(path, body, content_type), _SECONDS))

    async def _ask(self, path: str, body: bytes, content_type: str) -> tuple[int, bytes]:
        sent: list[Message] = []
        pending: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

        async def receive() -> Message:
            if pending:
                return pending.pop()
            await asyncio.Event().wait()  # the client stays
            raise AssertionError

        async def send(message: Message) -> None:
            sent.append(message)

        headers = [
            (b"content-type", content_type.encode("latin-1")),
            (b"host", b"127.0.0.1"),
            (b"content-length", b"%d" % len(body)),
        ]
        scope: Scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": "POST",
            "scheme": "http",
            "path": path,
            "raw_path": path.encode(),
            "query_string": b"",
            "root_path": "",
            "headers": headers,
            "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", 2),
            "state": {},
        }
        await self._app(scope, receive, send)
        if self._log.errors:
            error = self._log.errors.pop()
            self._log.errors.clear()
            raise error
        parts = b"".join(message.get("body", b"") for message in sent if message["type"] == "http.response.body")
        return sent[0]["status"], parts
