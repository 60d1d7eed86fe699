"""Texts of clients in messages."""

import doctest
import json

from hypothesis import given
from hypothesis import strategies as st

from tapeline.server import _errors, _shortening, _values
from tapeline.server._errors import RequestError
from tapeline.server._shortening import shortened_json, shortened_path
from tapeline.server._values import joined, shown


@given(st.text(max_size=40).map(lambda text: text * 20), st.integers(3, 200))
def test_a_text_is_as_short_as_asked(text: str, nbytes: int) -> None:
    short = shortened_json(text, nbytes)
    assert len(json.dumps(short, ensure_ascii=False).encode()) - 2 <= nbytes
    assert short == text or text.startswith(short.removesuffix("..."))


def test_paths_stay_short_however_deep_they_are() -> None:
    path = ""
    for _ in range(1000):
        path = joined(joined(path, "a" * 10_000), 3)
        assert len(path) <= 200
    assert path.endswith("...[3]")
    assert shortened_path("a.b") == "a.b"


def test_values_are_shown_without_being_written_whole() -> None:
    assert shown("a" * 4_000_000) == '"' + "a" * 59 + "..."
    assert shown([1] * 1_000_000) == "[" + "1, " * 19 + "1,..."
    assert shown({"a": [None, True]}) == '{"a": [null, true]}'


def test_errors_are_short_whatever_they_say() -> None:
    for text in ("a" * 4_000_000, "\x00" * 100_000, "\U0001f642" * 100_000):
        error = RequestError(f"{text}: unknown field", param=text)
        body = json.dumps(error.as_json(), ensure_ascii=False).encode()
        assert len(body) < 4096


def test_doctests() -> None:
    for module in (_errors, _shortening, _values):
        result = doctest.testmod(module)
        assert result.attempted
        assert not result.failed
