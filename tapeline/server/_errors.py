"""Refusals of requests, in the form that clients of OpenAI's API read."""

from collections.abc import Mapping
from typing import Any, Final

from lang_core import InputError

INVALID: Final = "invalid_request_error"
_KINDS: Final[Mapping[int, str]] = {
    401: "authentication_error",
    404: "not_found_error",
    429: "rate_limit_error",
    500: "server_error",
    503: "unavailable_error",
    504: "timeout_error",
}


class RequestError(InputError):
    """Request that is answered with an error.

    Attributes:
        status: HTTP's status.
        param: field of the request that is wrong; None where it is none in particular.
        code: short name of the error, such as ``model_not_found``; None where the status says it all.
        retry_after: seconds after which to try again; None where that would not help.
        allow: methods that the route takes, where the request's is not one of them.
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
        super().__init__(message)
        self.status: Final = status
        self.param: Final = param
        self.code: Final = code
        self.retry_after: Final = retry_after
        self.allow: Final = allow

    @property
    def headers(self) -> dict[str, str]:
        """Headers of the answer, over and above those of every answer."""
        seconds = None if self.retry_after is None else str(max(1, round(self.retry_after)))
        known = {"retry-after": seconds, "allow": self.allow}
        return {name: value for name, value in known.items() if value is not None}

    def as_json(self) -> dict[str, Any]:
        """Returns the answer's body.

        >>> RequestError("n: expected 1; found 2", param="n").as_json()["error"]["type"]
        'invalid_request_error'
        """
        kind = _KINDS.get(self.status, INVALID)
        return {"error": {"message": str(self), "type": kind, "param": self.param, "code": self.code}}
