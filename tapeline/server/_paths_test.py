"""Paths of the server in messages to clients."""

import doctest
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tapeline.server import _paths
from tapeline.server._paths import without_paths


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("/srv/models/c.json: expected 3", "c.json: expected 3"),
        ("/srv/my models/c.json: expected 3", "c.json: expected 3"),
        ("/srv/my models/of a friend/c.json", "c.json"),
        ("'/srv/my models/c.json' is damaged", "'c.json' is damaged"),
        ("file:///srv/my models/c.json: none", "c.json: none"),
        ("~/my models/c.json: none", "c.json: none"),
        ("../my models/c.json: none", "c.json: none"),
        ("/srv/models/: empty", "a directory: empty"),
        ("/srv/a.json and /srv/b.json differ", "b.json differ"),
        ("json_schema at #/properties/a/items: no", "json_schema at #/properties/a/items: no"),
        ("ask again, or see /health", "ask again, or see /health"),
        ("8 tokens/s, or more", "8 tokens/s, or more"),
        ("org/name is no model", "org/name is no model"),
    ],
)
def test_paths_are_names(text: str, shown: str) -> None:
    assert without_paths(text) == shown


_NAMES = st.text("ab c,.:;()'é-_", min_size=1, max_size=12).filter(lambda name: name.strip(". "))


@settings(max_examples=60, deadline=None)
@given(st.lists(_NAMES.map(lambda name: f"zq{name}"), min_size=1, max_size=3), st.booleans())
def test_a_path_that_exists_is_found_whatever_its_name(
    tmp_path_factory: pytest.TempPathFactory, names: list[str], made: bool
) -> None:
    top = tmp_path_factory.mktemp("paths of this server")
    directory = Path(top, *names)
    directory.mkdir(parents=True)
    file = directory / "config.json"
    if made:
        file.write_text("{}")
    for text in (f"{file}: expected 3", f"the file {file} is damaged", f"OSError: [Errno 2] none: '{file}'"):
        shown = without_paths(text, look=True)
        assert "config.json" in shown
        assert "zq" not in shown
        assert top.name not in shown


def test_relative_paths_that_exist_are_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my models" / "one").mkdir(parents=True)
    (tmp_path / "my models" / "one" / "c.json").write_text("{}")
    monkeypatch.chdir(tmp_path)
    assert without_paths("see my models/one/c.json: damaged", look=True) == "see c.json: damaged"
    assert without_paths("my models/one/d.json: none", look=True) == "d.json: none"


def test_a_client_learns_of_no_file_that_exists(tmp_path: Path) -> None:
    there, not_there = f"{tmp_path}/a, b/x", f"{tmp_path}/a, c/x"
    Path(there).mkdir(parents=True)
    assert without_paths(there).replace("b", "c") == without_paths(not_there)


def test_doctests() -> None:
    result = doctest.testmod(_paths)
    assert result.attempted
    assert not result.failed
