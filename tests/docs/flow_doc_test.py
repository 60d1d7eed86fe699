"""Runs the Python of docs/flow.md in order and compares its output with the page's."""

from pathlib import Path
from typing import Final

from tests.docs._snippets import Snippets, blocks_of
from transformer_core.flow import load_profiles

_PAGE: Final = "docs/flow.md"
_BLOCKS: Final = blocks_of(_PAGE)


def test_the_page_does_what_it_says() -> None:
    snippets = Snippets(_PAGE)
    shown = 0
    for number, (kind, code) in enumerate(_BLOCKS):
        if kind == "python":
            output = snippets.run(code, f"block {number}")
            following, text = _BLOCKS[number + 1]
            assert following == "text", f"block {number} is followed by no output"
            assert output == text, code
            shown += 1
    assert shown == 7
    assert snippets.uncalled() == []


def test_its_profiles_are_profiles(tmp_path: Path) -> None:
    (text,) = (code for kind, code in _BLOCKS if kind == "toml")
    path = tmp_path / "profiles.toml"
    path.write_text(text)
    assert [profile.name for profile in load_profiles(path)] == ["prefill", "embed"]
