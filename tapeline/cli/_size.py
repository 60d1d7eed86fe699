"""Sizes in bytes as text."""

import re
from typing import Final

from lang_core import InputError

_UNITS: Final = {"": 1, "B": 1, **{f"{p}iB": 1024**i for i, p in enumerate("KMGT", 1)}}
_UNITS.update({f"{p}B": 1000**i for i, p in enumerate("KMGT", 1)})
_SIZE: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([A-Za-z]*)\Z")


def parse_size(option: str, text: str) -> int:
    """Returns the bytes of a text such as ``1GiB``, ``512 MB`` or ``1000000``.

    Raises:
        InputError: the text is not a size above 0.
    """
    match = _SIZE.match(text.strip())
    unit = next((unit for unit in _UNITS if match and unit.lower() == match[2].lower()), None)
    size = int(float(match[1]) * _UNITS[unit]) if match and unit is not None else 0
    if size < 1:
        raise InputError(f"{option}={text}: expected a size such as 512MiB, 1GiB or 2.5GB")
    return size


def size_text(size: int) -> str:
    """Returns a size in bytes, MiB or GiB.

    >>> size_text(1234), size_text(3 << 19), size_text(5 << 29)
    ('1234 bytes', '1.50 MiB', '2.50 GiB')
    """
    if size < 10_000:
        return f"{size} bytes"
    return f"{size / 2**20:.2f} MiB" if size < 2**30 else f"{size / 2**30:.2f} GiB"
