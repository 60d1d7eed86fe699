"""Bodies of requests, read within limits of size and time."""

import asyncio
from typing import Final

from starlette.requests import ClientDisconnect, Request

from tapeline.server._errors import RequestError
from tapeline.server._gone import ClientGoneError
from tapeline.server._options import ServerOptions

_JSON: Final = "application/json"


async def read_json_text(request: Request, options: ServerOptions) -> bytes:
    """Returns a request's body, which says that it is JSON.

    Raises:
        RequestError: the body is of another type, too large or too slow.
        ClientGoneError: the client has gone before the end of the body.
    """
    return await read_body(request, options, _JSON, options.max_body_bytes)


async def read_body(request: Request, options: ServerOptions, media: str, most: int) -> bytes:
    """Returns a request's body.

    Args:
        request: the request.
        options: settings of the server.
        media: type that the body must have.
        most: largest number of bytes.

    Raises:
        RequestError: the body is of another type, too large or too slow.
        ClientGoneError: the client has gone before the end of the body.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != media:
        code = "not_json" if media == _JSON else "wrong_type"
        raise RequestError(f"content-type: expected {media}; found {kind[:60]!r}", status=415, code=code)
    try:
        async with asyncio.timeout(options.header_seconds):
            return await _read(request, most)
    except TimeoutError as error:
        seconds = options.header_seconds
        raise RequestError(f"the body did not come within {seconds:g} s: send it at once", status=408) from error
    except ClientDisconnect as error:
        raise ClientGoneError("the client has gone before the end of the body") from error


async def _read(request: Request, most: int) -> bytes:
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and int(declared) > most:
        raise _too_large(most)
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > most:
            raise _too_large(most)
    return bytes(body)


def _too_large(most: int) -> RequestError:
    return RequestError(f"the body is larger than {most} bytes: send less", status=413, code="body_too_large")
