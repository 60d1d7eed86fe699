"""Bodies of requests: JSON within limits."""

import json
from typing import Any, Final, NoReturn

from tapeline.server._errors import RequestError

_CODE: Final = "invalid_json"


def parse_json(body: bytes, depth: int) -> Any:
    """Returns the value of a body.

    Args:
        body: JSON in UTF-8.
        depth: largest number of lists and objects inside each other.

    Raises:
        RequestError: the body is no JSON, nests deeper, or has a string that is no Unicode.

    >>> parse_json(b'{"n": 1}', depth=4)
    {'n': 1}
    """
    try:
        value = json.loads(body.decode("utf-8"), parse_constant=_no_constant)
    except UnicodeDecodeError as error:
        raise RequestError(f"the body is not UTF-8 (byte {error.start}): send JSON in UTF-8", code=_CODE) from error
    except RecursionError as error:
        raise _too_deep(depth) from error
    except ValueError as error:
        raise RequestError(f"the body is no JSON ({error}): send one JSON object", code=_CODE) from error
    _check_tree(value, depth)
    return value


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number of JSON")


def _too_deep(depth: int) -> RequestError:
    return RequestError(f"the body nests deeper than {depth} lists and objects: send a flatter one", code=_CODE)


def _check_tree(value: Any, depth: int) -> None:
    """Checks how deep a value nests, and that its strings are Unicode."""
    level = [value]
    for _ in range(depth + 1):
        for text in level:
            if isinstance(text, str):
                _check_text(text)
        inside = [one for one in level if isinstance(one, dict | list)]
        if not inside:
            return
        level = [part for one in inside for part in ((*one, *one.values()) if isinstance(one, dict) else one)]
    raise _too_deep(depth)


def _check_text(text: str) -> None:
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise RequestError(
                f"the string {text[:40]!a} holds half of a surrogate pair: send characters of Unicode", code=_CODE
            ) from error
