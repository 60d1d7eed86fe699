"""Locates a line of a module's text in the model, for error messages."""

import os
import re
from typing import NamedTuple

_OP = re.compile(r'^\s*(?:%[\w$.:#]+(?:\s*,\s*%[\w$.:#]+)*\s*=\s*)?"?([A-Za-z_][\w$]*(?:\.[\w$]+)+|return)"?')


class ModuleLocation(NamedTuple):
    """Op and module of a line; None if they are unknown.

    Attributes:
        op: name of the op, for example ``stablehlo.add``.
        module_path: path of the module that the op belongs to, for example ``model.layers.3.mlp``.
    """

    op: str | None
    module_path: str | None


def locate(text_path: str | os.PathLike[str], line: int) -> ModuleLocation:
    """Finds the op at a line of a module's text, and the module of the model to which it belongs.

    The emitter writes the module path as a comment line (``    // model.layers.3``) before the ops of that module,
    at their indentation; the one that applies is the nearest above in the same function that is not indented
    more than the line. The file is read up to the line.

    Args:
        text_path: path of the module's text.
        line: line number, from 1.
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
                return ModuleLocation(op[1] if op else None, comments[-1][1] if comments else None)
    return ModuleLocation(None, None)
