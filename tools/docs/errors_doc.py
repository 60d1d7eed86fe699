"""Writes docs/errors.md: a section for each kind of error.

bazel run //tools/docs:errors_doc
"""

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tapeline.command import EXPLANATIONS

_HEAD: Final = """\
# Errors

<!-- Generated from tapeline/command/_explanations.py by `bazel run //tools/docs:errors_doc`. -->

Messages of Tapeline's errors have the request, the actual value, the place and the fix. A command prints an error to
stderr as `error: ...`, followed by a line `see: ...` with its section on this page. `tapeline explain KIND` prints the
same section. In Python each kind is an exception of that name, with the base class `lang_core.TapelineError`.

An error with a traceback is unexpected: report it with the output of `tapeline doctor`.
"""
_PAGE: Final = re.compile(r"\bdocs/([\w-]+\.md)")


def render() -> str:
    """Returns the page; each kind's anchor is its name in small letters."""
    sections = (_section(kind, *explanation) for kind, explanation in EXPLANATIONS.items())
    return "\n".join([_HEAD, *sections])


def _section(kind: str, meaning: str, causes: Sequence[str], cures: Sequence[str]) -> str:
    text = f"## {kind}\n\n{meaning}\n\nUsual causes:\n\n{_list(causes)}\nTo do:\n\n{_list(cures)}"
    return _PAGE.sub(r"[\1](\1)", text)


def _list(texts: Sequence[str]) -> str:
    return "".join(f"- {text}\n" for text in texts)


def main() -> None:
    """Writes the page into the workspace that Bazel was started in, else into the current folder."""
    root = Path(os.environ.get("BUILD_WORKSPACE_DIRECTORY", "."))
    (root / "docs" / "errors.md").write_text(render(), encoding="utf-8")


if __name__ == "__main__":
    main()
