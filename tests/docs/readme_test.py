"""What README.md shows is what happens: its Python is run in order, and its output compared."""

import contextlib
import io
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

_PAGE: Final = Path(__file__).parents[2] / "README.md"
_BLOCKS: Final[list[tuple[str, str]]] = re.findall(
    r"^```(\w+)\n(.*?)^```$", _PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
)


@pytest.fixture
def _folder(tmp_path: Path) -> Iterator[None]:
    """A folder of its own to stand in: the examples write files."""
    with contextlib.chdir(tmp_path):
        yield


def _output_of(code: str, names: dict[str, Any], label: str) -> str:
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile(code, label, "exec"), names)  # noqa: S102 - our own page
    return out.getvalue()


@pytest.mark.usefixtures("_folder")
def test_the_readme_does_what_it_says() -> None:
    names: dict[str, Any] = {"__name__": "readme"}
    shown = 0
    for number, (kind, code) in enumerate(_BLOCKS):
        if kind == "python":
            found = _output_of(code, names, f"README.md, block {number}")
            following, text = _BLOCKS[number + 1]
            assert following == "text", f"block {number} is followed by no output"
            assert found == text, code
            shown += 1
    assert shown >= 5
    names["weights"].close()


def test_the_first_commands_are_the_two() -> None:
    kind, commands = _BLOCKS[0]
    assert kind == "sh"
    assert [line.partition("#")[0].strip() for line in commands.splitlines()] == [
        "./bazelw run //tools:export",
        "./bazelw test //...",
    ]
