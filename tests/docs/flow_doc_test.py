"""Runs the Python of docs/flow.md in order and compares its output with the page's."""

import contextlib
import io
import re
from pathlib import Path
from typing import Any, Final

from transformer_core.flow import load_profiles

_PAGE: Final = Path(__file__).parents[2] / "docs" / "flow.md"
_BLOCKS: Final[list[tuple[str, str]]] = re.findall(
    r"^```(\w+)\n(.*?)^```$", _PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
)


def test_the_page_does_what_it_says() -> None:
    names: dict[str, Any] = {"__name__": "flow_doc"}
    shown = 0
    for number, (kind, code) in enumerate(_BLOCKS):
        if kind == "python":
            out = io.StringIO()
            with contextlib.redirect_stdout(out):
                exec(compile(code, f"docs/flow.md, block {number}", "exec"), names)  # noqa: S102 - our own page
            following, text = _BLOCKS[number + 1]
            assert following == "text", f"block {number} is followed by no output"
            assert out.getvalue() == text, code
            shown += 1
    assert shown == 7


def test_its_profiles_are_profiles(tmp_path: Path) -> None:
    (text,) = (code for kind, code in _BLOCKS if kind == "toml")
    path = tmp_path / "profiles.toml"
    path.write_text(text)
    assert [profile.name for profile in load_profiles(path)] == ["prefill", "embed"]
