"""Paths of the server in messages: clients do not see them."""

import os
import re
from typing import Final

_START: Final = re.compile(r"(?<![\w/#.~-])(?:[a-z]+:/{1,2}(?=/)|~|\.{1,2})?/(?=[^\s/])")
_WORD: Final = re.compile(r"(?<![\w/#.~-])[\w.~-]")
_END: Final = re.compile(r"[\n;,'\"()<>|]|[:.](?=\s|$)|[:.](?=['\"])")
_LONGEST: Final = 1024  # characters of a path that is looked for


def without_paths(text: str, *, look: bool = False) -> str:
    """Returns a text with the last names of files in place of their paths, for clients.

    A path ends at its last slash and name. Names may have spaces, so the text between two paths of a clause goes, too.

    Args:
        text: message.
        look: True looks for paths that exist, and so finds relative ones, and ones with commas and brackets. Give False
            if the text may hold a client's text: a client must not learn which files exist.

    >>> without_paths("/srv/my models/c.json: expected 3 (see /var/log/x)")
    'c.json: expected 3 (see x)'
    """
    parts: list[str] = []
    done = 0
    while (path := _next(text, done, look)) is not None:
        start, end, name = path
        parts += [text[done:start], name]
        done = end
    return "".join(parts) + text[done:]


def _next(text: str, begin: int, look: bool) -> tuple[int, int, str] | None:
    """Returns start, end and name of the next path; the name itself goes on after the end."""
    position = begin
    while (slash := text.find("/", position)) >= 0:
        starts = [match.start() for match in _START.finditer(text, position) if match.start() <= slash]
        starts += [match.start() for match in _WORD.finditer(text, position, slash)] if look else []
        for start in sorted(starts):
            path = _path(text, start, look)
            if path is not None:
                return start, *path
        position = slash + 1
    return None


def _path(text: str, start: int, look: bool) -> tuple[int, str] | None:
    """Returns end and name of the path at a place; None if there is none."""
    known = _existing(text, start) if look else start
    clause = _END.search(text, known)
    last = text.rfind("/", start, clause.start() if clause else len(text))
    absolute = _START.match(text, start) is not None
    several = absolute and last > text.find("/", start)
    if last < 0 or not (several or known > start):
        return None
    if known > last + 1:  # the name, too, is known
        return known, text[last + 1 : known]
    bare = last + 1 == len(text) or not (text[last + 1].isalnum() or text[last + 1] in "._-")
    return last + 1, "a directory" if bare else ""


def _existing(text: str, start: int) -> int:
    """Returns the end of the longest path with a slash that begins at a place and exists; the place if none does."""
    for end in range(min(len(text), start + _LONGEST), start + 1, -1):
        if "/" in text[start:end] and os.path.lexists(text[start:end]):
            return end
    return start
