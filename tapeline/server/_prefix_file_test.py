"""Prefix caches in files: as they were written, or left out."""

import io
import json
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from generation.engine import ArchivedBlock
from lang_core import InputError
from tapeline.server._log import Log
from tapeline.server._model import cache_salt
from tapeline.server._prefix_file import PrefixDirectory, PrefixFile

_RULES = "rules"


def blocks() -> list[ArchivedBlock]:
    """Returns two prefixes, one of which has two ends; arrays of several dtypes."""
    rng = np.random.default_rng(5)

    def block(salt: str, parent: int, count: int) -> ArchivedBlock:
        keys = rng.normal(size=(3, count, 5)).astype(np.float32)
        values = rng.normal(size=(2, count, 7)).astype(ml_dtypes.bfloat16)
        return ArchivedBlock(
            salt, parent, rng.integers(0, 99, count), [keys, values, rng.normal(size=4).astype(np.float32)]
        )

    return [block("a", -1, 32), block("a", 0, 32), block("a", 0, 9), block("b\0" + "1", -1, 32)]


def same(actual: Any, expected: Any) -> None:
    assert [(one.salt, one.parent) for one in actual] == [(one.salt, one.parent) for one in expected]
    for one, other in zip(actual, expected, strict=True):
        for mine, wanted in zip([one.tokens, *one.arrays], [other.tokens, *other.arrays], strict=True):
            assert (mine.dtype, mine.shape) == (wanted.dtype, wanted.shape)
            assert mine.tobytes() == wanted.tobytes()


def opened(path: Path, lines: io.StringIO, *, identity: str = "bundle", budget: int = 1 << 20) -> PrefixFile:
    return PrefixFile(path, identity, budget, Log(lines))


def test_blocks_are_read_as_they_were_written(tmp_path: Path) -> None:
    path, lines, written = tmp_path / "x.prefixes", io.StringIO(), blocks()
    assert list(opened(path, lines).load(_RULES)) == []
    opened(path, lines).save(_RULES, written)
    same(opened(path, lines).load(_RULES), written)
    assert path.stat().st_mode & 0o777 == 0o600
    assert [one.name for one in tmp_path.iterdir()] == ["x.prefixes"]
    assert list(opened(path, lines, identity="other").load(_RULES)) == []
    assert list(opened(path, lines).load("other rules")) == []
    events = [json.loads(line)["event"] for line in lines.getvalue().splitlines()]
    assert events == ["prefixes saved", "prefixes loaded", *["prefixes of another bundle"] * 2]


def test_the_size_is_bounded(tmp_path: Path) -> None:
    path, lines, written = tmp_path / "x.prefixes", io.StringIO(), blocks()
    sizes = [one.tokens.nbytes + sum(array.nbytes for array in one.arrays) for one in written]
    opened(path, lines, budget=sizes[0] + sizes[2]).save(_RULES, written)
    kept = opened(path, lines).load(_RULES)
    same(kept, [written[0], ArchivedBlock("a", 0, written[2].tokens, written[2].arrays)])
    opened(path, lines, budget=10).save(_RULES, written)
    assert list(opened(path, lines).load(_RULES)) == []


@pytest.mark.parametrize("where", ["magic", "length", "header", "first", "second", "cut", "empty"])
def test_damage_is_found_and_told(tmp_path: Path, where: str) -> None:
    path, lines, written = tmp_path / "x.prefixes", io.StringIO(), blocks()
    opened(path, lines).save(_RULES, written)
    data = bytearray(path.read_bytes())
    sizes = [one.tokens.nbytes + sum(array.nbytes for array in one.arrays) for one in written]
    begin = len(data) - sum(sizes)
    places = {"magic": 3, "length": 25, "header": 60, "first": begin + 7, "second": begin + sizes[0] + 7}
    if where in places:
        data[places[where]] ^= 4
    path.write_bytes({"cut": data[:-10], "empty": b""}.get(where, data))
    kept = {"first": written[3:], "second": [written[0], written[2], written[3]], "cut": written[:3]}.get(where, [])
    same(opened(path, lines).load(_RULES), kept)
    last = [json.loads(line) for line in lines.getvalue().splitlines()]
    assert any(line["event"] == ("damaged prefixes" if kept else "prefixes not loaded") for line in last)


def test_a_directory_that_cannot_be_written_leaves_the_server_alone(tmp_path: Path) -> None:
    lines = io.StringIO()
    opened(tmp_path / "nowhere" / "x.prefixes", lines).save(_RULES, blocks())
    assert json.loads(lines.getvalue())["event"] == "prefixes not saved"


def test_a_directory_has_one_secret(tmp_path: Path) -> None:
    first = PrefixDirectory.open(tmp_path / "a" / "b", Log(io.StringIO()))
    again = PrefixDirectory.open(tmp_path / "a" / "b", Log(io.StringIO()))
    other = PrefixDirectory.open(tmp_path / "c", Log(io.StringIO()))
    assert first.secret == again.secret != other.secret
    assert (first.path.stat().st_mode & 0o777, (first.path / "secret").stat().st_mode & 0o777) == (0o700, 0o600)
    salts = [cache_salt("key", "per_key", one.secret) for one in (first, again, other)]
    assert salts[0] == salts[1] != salts[2]
    (first.path / "secret").write_bytes(b"short")
    with pytest.raises(InputError, match="its file `secret` is damaged"):
        PrefixDirectory.open(first.path, Log(io.StringIO()))
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match=r"prefix_cache_dir=.*cannot be used"):
        PrefixDirectory.open(tmp_path / "file", Log(io.StringIO()))
