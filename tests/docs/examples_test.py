"""The Python of README.md, docs/jax.md and docs/packages.md is run in order, and its output compared with the page."""

import contextlib
from pathlib import Path

import pytest

from tests.docs._snippets import Snippets, blocks_of


@pytest.mark.parametrize(("page", "least"), [("README.md", 1), ("docs/jax.md", 1), ("docs/packages.md", 5)])
def test_pages_do_what_they_say(page: str, least: int, tmp_path: Path) -> None:
    snippets, blocks = Snippets(page), blocks_of(page)
    shown = 0
    with contextlib.chdir(tmp_path):  # the examples write files
        for number, (language, code) in enumerate(blocks):
            if language == "python":
                output = snippets.run(code, f"block {number}")
                following, text = blocks[number + 1]
                assert following == "text", f"block {number} is followed by no output"
                assert output == text, code
                shown += 1
        assert shown >= least
        if "weights" in snippets.names:
            snippets.names["weights"].close()
    assert snippets.uncalled() == []


def test_the_first_commands_are_the_two() -> None:
    language, commands = blocks_of("README.md")[0]
    assert language == "sh"
    assert [line.partition("#")[0].strip() for line in commands.splitlines()] == [
        "./bazelw run //tools:export",
        "./bazelw test //...",
    ]
