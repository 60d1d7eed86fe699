"""Refusals of requests, in the form that clients of OpenAI's API read."""

import re
from collections.abc import Collection, Mapping
from typing import Any, Final

from lang_core import InputError
from tapeline.server._shortening import shortened_json

INVALID: Final = "invalid_request_error"
_KINDS: Final[Mapping[int, str]] = {
    401: "authentication_error",
    404: "not_found_error",
    409: "conflict_error",
    429: "rate_limit_error",
    500: "server_error",
    503: "unavailable_error",
    504: "timeout_error",
}


_CONTENT: Final = (400, 404, 413, 415, 422)  # whose messages may show what a client sent
_MOST_MESSAGE: Final = 2000  # bytes
_MOST_PARAM: Final = 400  # bytes
_STEP: Final = re.compile(r"\.?([^.\[]+)|\[\d+\]")


class RequestError(InputError):
    """Request that is answered with an error.

    Attributes:
        status: HTTP's status.
        param: field of the request that is wrong; None if it is none in particular.
        code: short name of the error, such as ``model_not_found``; None if the status says it all.
        retry_after: seconds after which to try again; None if that would not help.
        allow: methods that the route takes, if the request's is not one of them.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int = 400,
        param: str | None = None,
        code: str | None = None,
        retry_after: float | None = None,
        allow: str | None = None,
    ) -> None:
        super().__init__(shortened_json(message, _MOST_MESSAGE))
        self.status: Final = status
        self.param: Final = None if param is None else shortened_json(param, _MOST_PARAM)
        self.code: Final = code
        self.retry_after: Final = retry_after
        self.allow: Final = allow

    @property
    def headers(self) -> dict[str, str]:
        """Headers of the answer, over and above those of every answer."""
        seconds = None if self.retry_after is None else str(max(1, round(self.retry_after)))
        known = {"retry-after": seconds, "allow": self.allow}
        return {name: value for name, value in known.items() if value is not None}

    def for_log(self, known: Collection[str]) -> dict[str, str]:
        """Returns the log's fields of the error, without data of the client.

        Args:
            known: names of fields that may be shown.

        >>> RequestError("a.secret: expected 1; found 2", param="a[0].secret").for_log({"a"})
        {'error': 'invalid_request_error', 'param': 'a[0]...'}
        """
        if self.status not in _CONTENT:
            return {"error": str(self)}
        more = {"code": self.code, "param": None if self.param is None else _known_path(self.param, known)}
        return {"error": self.kind, **{name: value for name, value in more.items() if value}}

    @property
    def kind(self) -> str:
        """Kind of the error in OpenAI's API."""
        return _KINDS.get(self.status, INVALID)

    def as_json(self) -> dict[str, Any]:
        """Returns the answer's body.

        >>> RequestError("n: expected 1; found 2", param="n").as_json()["error"]["type"]
        'invalid_request_error'
        """
        return {"error": {"message": str(self), "type": self.kind, "param": self.param, "code": self.code}}


def _known_path(path: str, known: Collection[str]) -> str:
    """Returns the path of a field up to the first name that is the client's."""
    end = 0
    for step in _STEP.finditer(path):
        if step.start() != end or (step[1] is not None and step[1] not in known):
            break
        end = step.end()
    return path if end == len(path) else f"{path[:end]}..."
