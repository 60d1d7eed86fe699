"""Responses that later requests continue, in bounded memory."""

import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tapeline.server._errors import RequestError
from tapeline.server._events import to_json

_MOST: Final = 1024  # responses
_MOST_BYTES: Final = 64 << 20


@dataclass(frozen=True, slots=True)
class StoredResponse:
    """Response that was stored.

    Attributes:
        name: its id.
        owner: client that alone may use it.
        messages: conversation up to and with the answer.
        body: the response.
    """

    name: str
    owner: str
    messages: Sequence[Mapping[str, Any]]
    body: Mapping[str, Any]


class ResponseStore:
    """The last responses, of all clients together.

    Args:
        most: largest number of responses.
        most_bytes: largest size of all responses, as JSON.
    """

    def __init__(self, most: int = _MOST, most_bytes: int = _MOST_BYTES) -> None:
        self._most: Final = most
        self._most_bytes: Final = most_bytes
        self._stored: Final[OrderedDict[str, tuple[StoredResponse, int]]] = OrderedDict()
        self._bytes = 0
        self._lock: Final = threading.Lock()

    def put(self, response: StoredResponse) -> None:
        """Stores a response, and evicts the least recently used ones if it is full."""
        size = len(to_json([response.messages, response.body]))
        with self._lock:
            self._forget(response.name)
            self._stored[response.name] = response, size
            self._bytes += size
            while self._stored and (len(self._stored) > self._most or self._bytes > self._most_bytes):
                self._forget(next(iter(self._stored)))

    def get(self, name: str, owner: str) -> StoredResponse:
        """Returns a response.

        Raises:
            RequestError: there is none of that name that is the client's.
        """
        with self._lock:
            stored = self._stored.get(name)
            if stored is None or stored[0].owner != owner:
                raise RequestError(
                    "previous_response_id: no such response is stored: only the last ones are kept, and none with "
                    "`store`: false; send the whole conversation as `input`",
                    status=404,
                    param="previous_response_id",
                    code="response_not_found",
                )
            self._stored.move_to_end(name)
            return stored[0]

    def delete(self, name: str, owner: str) -> None:
        """Forgets a response.

        Raises:
            RequestError: there is none of that name that is the client's.
        """
        self.get(name, owner)
        with self._lock:
            self._forget(name)

    def _forget(self, name: str) -> None:
        stored = self._stored.pop(name, None)
        if stored is not None:
            self._bytes -= stored[1]
