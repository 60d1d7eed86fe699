"""Forms of requests: fields of text, and one file."""

import logging
from collections.abc import AsyncGenerator
from typing import Any, Final

from starlette.datastructures import FormData, UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import Request

from tapeline.server._body import read_body
from tapeline.server._errors import RequestError
from tapeline.server._options import ServerOptions

_FILE: Final = "file"
_FORM: Final = "multipart/form-data"
_INVALID: Final = "invalid_form"
_MOST_FIELDS: Final = 32
_MOST_TEXT: Final = 1 << 16  # bytes of a field of text
_OVERHEAD: Final = 1 << 20  # bytes of a body beside its file
_NUMBERS: Final = ("temperature",)
_FLAGS: Final = ("stream",)
_TRUTHS: Final = {"true": True, "false": False}

# The parser's warnings say what the error says, once for each bad form, and are no lines of the server's log.
logging.getLogger("python_multipart").setLevel(logging.CRITICAL)


class _InMemory(MultiPartParser):
    """Parser that does not write files: the body is bounded, and in memory already."""

    spool_max_size = 1 << 62


async def read_form(request: Request, options: ServerOptions) -> tuple[dict[str, Any], bytes]:
    """Returns the fields of a form, and the bytes of its file.

    A field whose name ends with ``[]`` is a list. Numbers and flags, which a form has as text, are read as such.

    Raises:
        RequestError: the body is not a form, is too large or too slow, or lacks a file.
        ClientGoneError: the client has gone before the end of the body.
    """
    body = await read_body(request, options, _FORM, options.max_audio_bytes + _OVERHEAD)
    if not body.rstrip().endswith(b"--"):
        raise RequestError("the body is no form that can be read: it does not end with its boundary", code=_INVALID)
    parser = _InMemory(request.headers, _once(body), max_files=1, max_fields=_MOST_FIELDS, max_part_size=_MOST_TEXT)
    try:
        form = await parser.parse()
    except (MultiPartException, KeyError, ValueError) as error:
        raise RequestError(f"the body is no form that can be read: {error}", code=_INVALID) from error
    try:
        return await _contents(form)
    finally:
        await form.close()


async def _contents(form: FormData) -> tuple[dict[str, Any], bytes]:
    file = form.get(_FILE)
    if not isinstance(file, UploadFile):
        raise RequestError("file: this field is required: a WAV or FLAC file", param=_FILE)
    texts: dict[str, Any] = {}
    for name in form:
        values = [value for value in form.getlist(name) if isinstance(value, str)]
        if values:
            texts[name.removesuffix("[]")] = values if name.endswith("[]") else _value(name, values[-1])
    return texts, await file.read()


async def _once(body: bytes) -> AsyncGenerator[bytes, None]:
    yield body


def _value(name: str, text: str) -> Any:
    """Returns the value of a field's text; other text than numbers or flags stays, to be refused by name."""
    if name in _FLAGS:
        return _TRUTHS.get(text, text)
    try:
        return float(text) if name in _NUMBERS else text
    except ValueError:
        return text
