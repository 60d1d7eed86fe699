"""Bodies of requests: JSON within limits."""

from typing import Any, Final

from lang_core import JsonBounds, JsonError, json_value
from tapeline.server._errors import RequestError

_CODE: Final = "invalid_json"
_MOST_VALUES: Final = 1 << 22  # commas and opening brackets; the size of the body is checked before


def parse_json(body: bytes, depth: int) -> Any:
    """Returns the value of a body.

    Args:
        body: JSON in UTF-8.
        depth: largest number of lists and objects inside each other.

    Raises:
        RequestError: the body is not JSON, nests deeper, or has a string that is not valid Unicode.

    >>> parse_json(b'{"n": 1}', depth=4)
    {'n': 1}
    """
    try:
        return json_value(body, JsonBounds(nbytes=len(body), depth=depth, values=_MOST_VALUES))
    except JsonError as error:
        raise RequestError(f"the body is no JSON ({error}): send one JSON object", code=_CODE) from error
