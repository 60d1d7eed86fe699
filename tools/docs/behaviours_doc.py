"""Writes docs/behaviours.md from the table of founding behaviours: ``bazel run //tools/docs:behaviours_doc``."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tools.docs._behaviours import AREAS, BEHAVIOURS, Behaviour

_HEADER: Final = """\
# Founding behaviours

This page is generated from `tools/docs/_behaviours.py`: run `bazel run //tools/docs:behaviours_doc`. Each row is a
promise and the test that proves it; tests hold that the page is up to date and that every named test is in the tree.
Which op works where is in [status.md](status.md).
"""


def render() -> str:
    """Returns the page: a table per area."""
    return "\n".join([_HEADER, *(line for area in AREAS for line in _section(area))])


def _section(area: str) -> Iterator[str]:
    yield f"## {AREAS[area]}\n"
    yield "| behaviour | test |\n|---|---|"
    yield from (_row(behaviour) for behaviour in BEHAVIOURS if behaviour.area == area)
    yield ""


def _row(behaviour: Behaviour) -> str:
    path, _, test = behaviour.test.partition("::")
    return f"| {behaviour.sentence} | [{test}](../{path}) |"


def main() -> None:
    """Writes the page into the workspace that Bazel was started in, else into the current folder."""
    root = Path(os.environ.get("BUILD_WORKSPACE_DIRECTORY", "."))
    (root / "docs" / "behaviours.md").write_text(render(), encoding="utf-8")


if __name__ == "__main__":
    main()
