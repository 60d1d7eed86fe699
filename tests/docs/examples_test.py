"""The Python of README.md, docs/jax.md and docs/packages.md is run in order, and its output compared with the page."""

import contextlib
import io
import re
from pathlib import Path
from typing import Any, Final

import pytest

_ROOT: Final = Path(__file__).parents[2]


def _blocks(page: str) -> list[tuple[str, str]]:
    """The fenced blocks of a page: language and text."""
    text = (_ROOT / page).read_text(encoding="utf-8")
    return re.findall(r"^```(\w+)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def _output_of(code: str, names: dict[str, Any], label: str) -> str:
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile(code, label, "exec"), names)  # noqa: S102 - our own page
    return out.getvalue()


@pytest.mark.parametrize(("page", "least"), [("README.md", 1), ("docs/jax.md", 1), ("docs/packages.md", 5)])
def test_pages_do_what_they_say(page: str, least: int, tmp_path: Path) -> None:
    names: dict[str, Any] = {"__name__": "page"}
    blocks = _blocks(page)
    shown = 0
    with contextlib.chdir(tmp_path):  # the examples write files
        for number, (language, code) in enumerate(blocks):
            if language == "python":
                output = _output_of(code, names, f"{page}, block {number}")
                following, text = blocks[number + 1]
                assert following == "text", f"block {number} is followed by no output"
                assert output == text, code
                shown += 1
        assert shown >= least
        if "weights" in names:
            names["weights"].close()


def test_the_first_commands_are_the_two() -> None:
    language, commands = _blocks("README.md")[0]
    assert language == "sh"
    assert [line.partition("#")[0].strip() for line in commands.splitlines()] == [
        "./bazelw run //tools:export",
        "./bazelw test //...",
    ]
