"""Errors of all kinds as the errors that clients are answered with."""

from typing import Final

from starlette.exceptions import HTTPException

from generation.engine import BusyError, EngineClosedError
from lang_core import InputError, TapelineError
from tapeline.server._errors import RequestError
from tapeline.server._paths import without_paths

_ROUTING: Final = {
    404: "no such route: /openapi.json lists them",
    405: "the route does not take this method: /openapi.json lists them",
}


def as_request_error(error: Exception) -> RequestError:
    """Returns an error for the client, without paths of the server."""
    if isinstance(error, RequestError):
        return error
    if isinstance(error, HTTPException):
        allow = (error.headers or {}).get("Allow")
        return RequestError(_ROUTING.get(error.status_code, error.detail), status=error.status_code, allow=allow)
    if isinstance(error, BusyError):
        return RequestError(str(error), status=429, code="queue_full", retry_after=error.retry_after)
    if isinstance(error, EngineClosedError):
        return RequestError("the model was closed: ask again", status=503, code="unavailable", retry_after=1)
    if isinstance(error, InputError):
        return RequestError(without_paths(str(error)))
    typed = isinstance(error, TapelineError)
    told = without_paths(str(error), look=True) if typed else "the server failed, and says why in its log"
    failure = RequestError(told, status=500, code="server_error")
    failure.__cause__ = error
    return failure
