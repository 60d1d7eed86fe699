"""Answers as server-sent events."""

import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Any, Final

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from lang_core import TapelineError
from tapeline.server._errors import RequestError
from tapeline.server._failures import as_request_error
from tapeline.server._gone import ClientGoneError, unless_gone

_DONE: Final = b"data: [DONE]\n\n"
_ENCODER: Final = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))
_HEADERS: Final = {"cache-control": "no-cache", "x-accel-buffering": "no"}


def to_json(value: Any) -> bytes:
    """Returns a value as JSON in UTF-8, without spaces."""
    return _ENCODER.encode(value).encode()


class EventStream(Response):
    """Stream of events, which ends with ``[DONE]``; a failure is an event with ``error`` before it.

    Args:
        events: bodies of the events. The generator is closed if the client goes.
    """

    media_type = "text/event-stream"
    _last: bytes = _DONE

    def __init__(self, events: AsyncGenerator[Mapping[str, Any], None]) -> None:
        super().__init__(headers=_HEADERS)
        del self.headers["content-length"]
        self._events: Final = events

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Sends the events."""
        async with aclosing(self._events) as events:
            await unless_gone(receive, self._send(send, events))

    async def _send(self, send: Send, events: AsyncGenerator[Mapping[str, Any], None]) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        try:
            async for event in events:
                await _body(send, self._written(event))
        except ClientGoneError:
            raise
        except TapelineError as error:
            await _body(send, self._written(self._failure(as_request_error(error))))
        await _body(send, self._last)
        await _body(send, b"", more=False)

    def _written(self, event: Mapping[str, Any]) -> bytes:
        return b"data: " + to_json(event) + b"\n\n"

    def _failure(self, error: RequestError) -> Mapping[str, Any]:
        return error.as_json()


class BareEventStream(EventStream):
    """Stream of events that ends with the last event, as llama-server has it."""

    _last = b""


class NamedEventStream(EventStream):
    """Stream of events that have their field ``type`` as their name; an event ``error`` ends one that fails."""

    _last = b""

    def _written(self, event: Mapping[str, Any]) -> bytes:
        return b"event: " + event["type"].encode() + b"\n" + super()._written(event)

    def _failure(self, error: RequestError) -> Mapping[str, Any]:
        inner = error.as_json()["error"]
        return {"type": "error", **inner, "error": inner} | {"type": "error"}


async def _body(send: Send, body: bytes, *, more: bool = True) -> None:
    await send({"type": "http.response.body", "body": body, "more_body": more})
