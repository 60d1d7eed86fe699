"""The reader of JSON against Python's own, and what it refuses."""

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lang_core import ConfigError, InputError, JsonBounds, JsonError, file_bytes, file_json, json_value, read_json

LEAVES = (
    st.none() | st.booleans() | st.integers(1 - 10**39, 10**40 - 1) | st.floats(allow_nan=False) | st.text(max_size=8)
)
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=12,
)


def depth_of(value: object) -> int:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return 0 if inner is None else 1 + max(map(depth_of, inner), default=0)


@given(VALUES, st.booleans())
def test_what_python_writes_is_read(value: object, ascii_only: bool) -> None:
    text = json.dumps(value, ensure_ascii=ascii_only)
    assert json_value(text, nonfinite=True) == json_value(text.encode(), nonfinite=True) == value


@given(VALUES, st.integers(0, 6))
def test_values_that_nest_too_deep_are_refused(value: object, depth: int) -> None:
    text, bounds = json.dumps(value), JsonBounds(depth=depth)
    if depth_of(value) <= depth:
        assert json_value(text, bounds, nonfinite=True) == value
    else:
        with pytest.raises(JsonError, match=f"nests deeper than {depth} lists and objects"):
            json_value(text, bounds, nonfinite=True)


@given(st.binary(max_size=60))
def test_any_bytes_are_read_as_python_reads_them_or_refused(text: bytes) -> None:
    try:
        value = json_value(text, nonfinite=True)
    except JsonError:
        return
    expected = json.loads(text.decode("utf-8"))
    assert value == expected or value != value


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"", "Expecting value"),
        (b"{", "Expecting property name"),
        (b"[1] 2", "Extra data"),
        (b"\xff\xfe[\x001\x00]\x00", r"is not UTF-8 \(byte 0\)"),
        (b"\xef\xbb\xbf[]", "begins with a byte order mark"),
        (b"[NaN]", "NaN is no number of JSON"),
        (b"[-Infinity]", "-Infinity is no number of JSON"),
        (b"[1e400]", "the number 1e400 is beyond 64-bit floats"),
        (b"[-1" + b"0" * 400 + b".5]", r"the number -10{18}\.\.\. is beyond 64-bit floats"),
        (b"[1" + b"0" * 40 + b"]", r"the integer 10{19}\.\.\. has 41 digits, 40 are read"),
        (b"[" + b"9" * 100_000 + b"]", "has 100000 digits, 40 are read"),
        (b"[" * 100_000 + b"]" * 100_000, "nests deeper than 100"),
        (b'{"a":' * 100_000 + b"1" + b"}" * 100_000, "nests deeper than 100"),
        (b"[" * 101 + b"]" * 101, "nests deeper than 100"),
        (b"[" * 600 + b"]" * 600, "nests deeper than 100"),
        (b'["\\ud800"]', "half of a surrogate pair"),
        (b'{"a": {"\\udfff": 1}}', "half of a surrogate pair"),
        (b"[" + b"0," * (1 << 20) + b"0]", "has 1048577 commas and brackets, 1048576 are read"),
        (b'"' + b"a" * (16 << 20) + b'"', r"has 16777218 bytes, 16777216 are read"),
    ],
)
def test_what_is_refused(text: bytes, message: str) -> None:
    with pytest.raises(JsonError, match=message):
        json_value(text)
    with pytest.raises(InputError):  # which commands end with exit code 2 for
        json_value(text)


def test_depth_is_the_same_however_deep_the_caller_is() -> None:
    text = "[" * 100 + "]" * 100

    def called(level: int) -> object:
        return called(level - 1) if level else json_value(text)

    assert called(0) == called(500)


def test_a_pair_of_surrogates_is_a_letter() -> None:
    assert json_value('["\\ud83d\\ude42"]') == ["🙂"]


def test_the_words_that_only_python_writes() -> None:
    values = json_value("[NaN, Infinity, -Infinity]", nonfinite=True)
    assert math.isnan(values[0])
    assert values[1:] == [math.inf, -math.inf]
    with pytest.raises(JsonError, match="1e400"):
        json_value("[1e400]", nonfinite=True)


def test_keys_that_are_there_twice() -> None:
    text = '{"a": 1, "b": {"c": 1, "c": 2}}'
    assert json_value(text) == {"a": 1, "b": {"c": 2}}
    with pytest.raises(JsonError, match="has the key 'c' twice"):
        json_value(text, unique=True)


def test_files(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text('{"a": 1}')
    assert file_json(path) == read_json(path, "fetch it") == {"a": 1}
    assert file_bytes(path, 8) == b'{"a": 1}'
    with pytest.raises(OSError, match="more than 7 bytes"):
        file_bytes(path, 7)
    with pytest.raises(ConfigError, match=r"config.json: cannot be read: it has more than 4 bytes.*: fetch it"):
        read_json(path, "fetch it", JsonBounds(nbytes=4))
    with pytest.raises(InputError, match=r"none.json: no such file: fetch it"):
        read_json(tmp_path / "none.json", "fetch it", error=InputError)
    with pytest.raises(IsADirectoryError):
        file_json(tmp_path)
    with pytest.raises(ConfigError, match=r"cannot be read: Is a directory"):
        read_json(tmp_path, "fetch it")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
def test_a_pipe_and_a_device_are_refused_without_waiting(tmp_path: Path) -> None:
    pipe = tmp_path / "config.json"
    os.mkfifo(pipe)
    for path in (pipe, Path("/dev/zero")):
        with pytest.raises(OSError, match="it is no regular file"):
            file_bytes(path, 1 << 20)


_CHILD = """
import resource, sys
resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
from lang_core import JsonBounds, JsonError, json_value
small = JsonBounds(nbytes=16 << 20, depth=100, values=1 << 20)
refused = 0
for part in ("[", "{\\"a\\":", "[[],", "0,", "1e9,", "[{},", "\\"\\\\u0041\\",", "9", "\\"\\U0001F642"):
    text = part * ((16 << 20) // len(part.encode()))
    for text in (text, "[" + text.rstrip(",") + "]", "[" + part * 200_000):
        try:
            json_value(text, small)
        except JsonError:
            refused += 1
print(refused)
"""


def test_texts_as_long_as_the_bound_need_no_gigabyte() -> None:
    """Runs in a child with a limit of memory: a text within the bounds must not become a value of gigabytes."""
    done = subprocess.run(
        [sys.executable, "-c", _CHILD], env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    assert int(done.stdout) == 27
