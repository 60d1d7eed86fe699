"""The reader of every JSON text that comes from a file, a request, another process or a model's answer.

``json.loads`` alone is not enough for such a text: lists 1,000 deep raise RecursionError, ``1e400`` becomes infinity,
100,000 digits become an error of another kind, and a short text can become a large value. ``json_value`` checks size,
depth, number of values, numbers and characters, and raises one typed error. A test of tests/layering forbids
``json.load`` and ``json.loads`` elsewhere.
"""

import errno
import json
import math
import os
import re
import stat
from typing import Any, Final, NamedTuple

from lang_core._choices import checked_choices
from lang_core._errors import ConfigError, InputError

MOST_DIGITS: Final = 40
"""Most digits of an integer: tokenizer_config.json has 10^30 for "no limit"."""
_HALF_PAIR: Final = re.compile(r"\\u[dD][89a-fA-F]")  # an escape that may be half of a surrogate pair

_READ: Final = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)
_CHUNK: Final = 1 << 20


class JsonBounds(NamedTuple):
    """Bounds of a JSON text.

    Attributes:
        nbytes: most bytes.
        depth: most lists and objects inside each other.
        values: most values, counted as commas and opening brackets, those in strings as well.
    """

    nbytes: int = 16 << 20
    depth: int = 100
    values: int = 1 << 20


JSON_BOUNDS: Final = JsonBounds()
"""Bounds of configurations, and of everything else that has no bounds of its own."""

LARGE_JSON_BOUNDS: Final = JsonBounds(nbytes=256 << 20, values=1 << 23)
"""Bounds of files with an entry per token or per tensor: tokenizer.json, an index of weights, kernel_config.json."""


class JsonError(InputError, ValueError):
    """A text is not JSON, or exceeds its bounds. The message does not name the file: the caller does."""


@checked_choices
def json_value(
    text: bytes | str, bounds: JsonBounds = JSON_BOUNDS, *, nonfinite: bool = False, unique: bool = False
) -> Any:
    """Returns the value of a JSON text.

    Args:
        text: the text; bytes must be UTF-8 without a byte order mark.
        bounds: bounds of the text.
        nonfinite: True reads ``NaN``, ``Infinity`` and ``-Infinity``, which Python writes and JSON lacks.
        unique: True refuses an object that has a key twice; else the last value counts, as in Python's json.

    Raises:
        JsonError: the text is not JSON, exceeds its bounds, or holds half of a surrogate pair.

    >>> json_value('{"layers": 2}')
    {'layers': 2}
    >>> json_value("[" * 1000)
    Traceback (most recent call last):
        ...
    lang_core._json.JsonError: nests deeper than 100 lists and objects
    >>> json_value('{"layers": 1e400}')
    Traceback (most recent call last):
        ...
    lang_core._json.JsonError: the number 1e400 is beyond 64-bit floats
    """
    if len(text) > bounds.nbytes:
        raise JsonError(
            f"has {len(text)} {'bytes' if isinstance(text, bytes) else 'characters'}, {bounds.nbytes} are read"
        )
    decoded = _decoded(text)
    count = decoded.count(",") + decoded.count("[") + decoded.count("{")
    if count > bounds.values:
        raise JsonError(f"has {count} commas and brackets, {bounds.values} are read")
    try:
        value = json.loads(
            decoded,
            parse_constant=None if nonfinite else _no_constant,
            parse_float=_float,
            parse_int=_integer,
            object_pairs_hook=_unique if unique else None,
        )
    except RecursionError:
        raise JsonError(_deep(bounds.depth)) from None
    except JsonError:
        raise
    except ValueError as error:
        raise JsonError(str(error)) from None
    _check_depth(value, bounds.depth)
    if _HALF_PAIR.search(decoded) or (isinstance(text, str) and not _is_unicode(text)):
        _check_strings(value)
    return value


def open_regular(path: str | os.PathLike[str]) -> int:
    """Returns a descriptor of a regular file, for reading.

    Raises:
        OSError: the file cannot be read, or is not a regular file (a pipe would block, a device never ends).
    """
    descriptor = os.open(path, _READ)
    try:
        mode = os.fstat(descriptor).st_mode
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), os.fspath(path))
        if not stat.S_ISREG(mode):
            raise OSError(errno.EINVAL, "it is no regular file", os.fspath(path))
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def file_bytes(path: str | os.PathLike[str], most: int) -> bytes:
    """Returns the bytes of a regular file.

    Args:
        path: path of the file.
        most: most bytes that are read.

    Raises:
        OSError: the file cannot be read, is not a regular file (a pipe would block, a device never ends), or is larger.
    """
    descriptor = open_regular(path)
    try:
        parts: list[bytes] = []
        left = most + 1
        while left and (part := os.read(descriptor, min(left, _CHUNK))):
            parts.append(part)
            left -= len(part)
    finally:
        os.close(descriptor)
    if not left:
        raise OSError(errno.EFBIG, f"it has more than {most} bytes, which is the most that is read", os.fspath(path))
    return b"".join(parts)


@checked_choices
def file_json(
    path: str | os.PathLike[str], bounds: JsonBounds = JSON_BOUNDS, *, nonfinite: bool = False, unique: bool = False
) -> Any:
    """Returns the value of a JSON file. The caller names the file in its message.

    Args:
        path: path of the file.
        bounds: bounds of the text.
        nonfinite: as for ``json_value``.
        unique: as for ``json_value``.

    Raises:
        OSError: as ``file_bytes``.
        JsonError: as ``json_value``.
    """
    return json_value(file_bytes(path, bounds.nbytes), bounds, nonfinite=nonfinite, unique=unique)


@checked_choices
def read_json(
    path: str | os.PathLike[str],
    remedy: str,
    bounds: JsonBounds = JSON_BOUNDS,
    *,
    error: type[InputError] = ConfigError,
    nonfinite: bool = False,
) -> Any:
    """Returns the value of a JSON file.

    Args:
        path: path of the file.
        remedy: fix for a missing or damaged file, for the message.
        bounds: bounds of the text.
        error: class of the error.
        nonfinite: as for ``json_value``.

    Raises:
        InputError: of the class ``error``; the file is missing, unreadable, not JSON or beyond its bounds.
    """
    try:
        return file_json(path, bounds, nonfinite=nonfinite)
    except FileNotFoundError:
        raise error(f"{os.fspath(path)}: no such file: {remedy}") from None
    except OSError as failure:
        raise error(f"{os.fspath(path)}: cannot be read: {failure.strerror or failure}: {remedy}") from None
    except ValueError as failure:
        raise error(f"{os.fspath(path)}: is no JSON that is read: {failure}: {remedy}") from None


def _decoded(text: bytes | str) -> str:
    if isinstance(text, str):
        decoded = text
    else:
        try:
            decoded = str(text, "utf-8")
        except UnicodeDecodeError as error:
            raise JsonError(f"is not UTF-8 (byte {error.start})") from None
    if decoded.startswith("\ufeff"):
        raise JsonError("begins with a byte order mark: save it as UTF-8 without one")
    return decoded


def _no_constant(name: str) -> Any:
    raise JsonError(f"{name} is no number of JSON")


def _float(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise JsonError(f"the number {text:.20}{'...' if len(text) > 20 else ''} is beyond 64-bit floats")
    return value


def _integer(text: str) -> int:
    if len(text) > MOST_DIGITS:
        raise JsonError(f"the integer {text:.20}... has {len(text)} digits, {MOST_DIGITS} are read")
    return int(text)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))
        raise JsonError(f"has the key {twice!r:.80} twice")
    return values


def _deep(depth: int) -> str:
    return f"nests deeper than {depth} lists and objects"


def _check_depth(value: Any, depth: int) -> None:
    level = [value] if isinstance(value, dict | list) else []
    for _ in range(depth):
        if not level:
            return
        level = [
            part
            for one in level
            for part in (one.values() if type(one) is dict else one)
            if type(part) is dict or type(part) is list
        ]
    if level:
        raise JsonError(_deep(depth))


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _check_strings(value: Any) -> None:
    """Checks that keys and strings are Unicode: an escape can be half of a surrogate pair."""
    left = [value]
    while left:
        one = left.pop()
        if type(one) is dict:
            left += one
            left += one.values()
        elif type(one) is list:
            left += one
        elif type(one) is str and not _is_unicode(one):
            raise JsonError(f"the string {one[:40]!a} holds half of a surrogate pair")
