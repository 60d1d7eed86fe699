"""Finds what a line of a module's text is about, for error messages."""

import os
import re
from typing import NamedTuple

_OP = re.compile(r'^\s*(?:%[\w$.:#]+(?:\s*,\s*%[\w$.:#]+)*\s*=\s*)?"?([A-Za-z_][\w$]*(?:\.[\w$]+)+|return)"?')


class Place(NamedTuple):
    """What stands at a line; None where it cannot be told.

    Attributes:
        op: the op's name, for example ``stablehlo.add``.
        module_path: the module that the op belongs to, for example ``model.layers.3.mlp``.
    """

    op: str | None
    module_path: str | None


def locate(text_path: str | os.PathLike[str], line: int) -> Place:
    """Tells which op stands at a line of a module's text, and to which module it belongs.

    The emitter writes the module path as a comment line (``    // model.layers.3``) before the ops of that module,
    at their indentation; the comment that counts is the nearest above that is no deeper than the line and
    in the same function. The file is read line by line up to the line asked for.

    Args:
        text_path: the module's text.
        line: counted from 1.
    """
    comments: list[tuple[int, str]] = []  # indentation and path, each deeper than the one before
    with open(text_path, encoding="utf-8", errors="replace") as file:
        for number, text in enumerate(file, start=1):
            stripped = text.strip()
            if not stripped:
                continue
            indent = len(text) - len(text.lstrip())
            is_comment = stripped.startswith("//")
            while comments and (comments[-1][0] > indent or (is_comment and comments[-1][0] == indent)):
                comments.pop()
            if is_comment:
                comments.append((indent, stripped.removeprefix("//").strip()))
            if number == line:
                op = _OP.match(text)
                return Place(op[1] if op else None, comments[-1][1] if comments else None)
    return Place(None, None)
