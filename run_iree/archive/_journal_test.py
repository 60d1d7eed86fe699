import contextlib
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lang_core import InputError, TensorSpec
from run_iree.archive import ArchiveEntry, ArchiveJournal, NonFinite, WrittenArchive, _writer, write_archive

_ROWS = 37
_UNIT = 130  # bytes: more than lie between two marks
_SPECS = {"a": TensorSpec((_ROWS, 5), "f32"), "b": TensorSpec((_ROWS, 3), "f32"), "c": TensorSpec((), "f32")}
_ENTRIES = [ArchiveEntry(f"p.{key}", key, spec) for key, spec in _SPECS.items()]


class Interrupted(Exception):
    """Stands for the end of a process."""


class Source:
    """Gives each element its own value, and one NaN per row of ``a``; counts rows, and may end before one."""

    def __init__(self, rows: int | None = None) -> None:
        self.read_so_far = 0
        self._rows = rows

    def keys(self) -> Iterator[str]:
        return iter(_SPECS)

    def has(self, key: str) -> bool:
        return key in _SPECS

    def spec(self, key: str) -> TensorSpec:
        return _SPECS[key]

    def encoding(self, key: str) -> None:
        return None

    def read(self, key: str) -> np.ndarray:
        return self.read_rows(key, 0, _ROWS)

    def read_rows(self, key: str, start: int, stop: int) -> np.ndarray:
        self.read_so_far += stop - start
        if self._rows is not None and self.read_so_far > self._rows:
            raise Interrupted
        array = np.arange(_SPECS[key].size, dtype=np.float32).reshape(_SPECS[key].shape)
        if key == "a":
            array[:, 2] = np.nan
        return array[start:stop] if array.ndim else array

    def origin(self, key: str) -> str:
        return f"memory of {key}"


def _write(directory: Path, source: Source, key: str = "one") -> WrittenArchive:
    journal = ArchiveJournal(directory / "journal", key)
    return write_archive(directory / "w.irpa", _ENTRIES, source, chunk_bytes=24, journal=journal)


@pytest.fixture(autouse=True)
def _marks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_writer, "MARK_BYTES", 50)
    monkeypatch.setattr("run_iree.archive._output._ANNOUNCE_BYTES", 1)
    monkeypatch.setattr("run_iree.archive._output.UNIT_BYTES", _UNIT)


def _whole(directory: Path) -> tuple[bytes, WrittenArchive]:
    directory.mkdir(exist_ok=True)
    written = _write(directory, Source())
    assert len(written.sha256) == 64
    return (directory / "w.irpa").read_bytes(), written


def _stopped(directory: Path, rows: int, key: str = "one") -> None:
    with pytest.raises(Interrupted):
        _write(directory, Source(rows), key)


@settings(deadline=None, max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.integers(0, 2 * _ROWS), max_size=4))
def test_however_often_it_is_stopped_the_archive_is_the_same(
    tmp_path_factory: pytest.TempPathFactory, stops: list[int]
) -> None:
    directory = tmp_path_factory.mktemp("stopped")
    wanted, reference = _whole(directory / "whole")
    for rows in stops:
        with contextlib.suppress(Interrupted):  # later tries have less to do, and may come to the end
            _write(directory, Source(rows))
    written = _write(directory, Source())
    assert written.sha256 == reference.sha256
    assert (directory / "w.irpa").read_bytes() == wanted
    assert written.nonfinite == reference.nonfinite == {"p.a": (_ROWS, 0)}
    assert sorted(os.listdir(directory)) == ["journal", "w.irpa", "whole"]


def test_a_resumed_write_ends_the_unit_that_it_begins_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted, _ = _whole(tmp_path / "whole")
    _stopped(tmp_path, _ROWS + 20)
    places, real = list[int](), os.write

    def noting(descriptor: int, data: memoryview) -> int:
        places.append(os.lseek(descriptor, 0, os.SEEK_CUR))
        return real(descriptor, data)

    monkeypatch.setattr("run_iree.archive._output.os.write", noting)
    _write(tmp_path, Source())
    assert (tmp_path / "w.irpa").read_bytes() == wanted
    assert len(places) > 3
    assert places[0] % _UNIT
    assert not any(place % _UNIT for place in places[1:])


def test_a_mark_counts_what_is_in_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not what waits for the rest of its unit: a kill would lose that."""
    journal = ArchiveJournal(tmp_path / "journal", "one")
    real, marks = journal.marker, list[tuple[int, int]]()
    link = tmp_path / "link"  # the last marks can come after the file got its final name

    def marker(offset: int, nonfinite: Mapping[str, NonFinite]) -> Callable[[str], None]:
        def note(sha256: str) -> None:
            marks.append((offset, link.stat().st_size))
            real(offset, nonfinite)(sha256)

        return note

    def waiting(written: int, _total: int) -> None:
        """The hash has its time: it comes to every mark that it can reach."""
        if not link.exists():
            link.hardlink_to(tmp_path / ".w.irpa.partial")
        if written > 4096:
            assert link.stat().st_size > written - _UNIT
            time.sleep(0.001)

    monkeypatch.setattr(journal, "marker", marker)
    written = write_archive(tmp_path / "w.irpa", _ENTRIES, Source(), chunk_bytes=24, journal=journal, progress=waiting)
    assert written.sha256
    assert len(marks) > 3
    assert all(offset <= size for offset, size in marks)


def test_only_what_is_missing_is_read_again(tmp_path: Path) -> None:
    _stopped(tmp_path, _ROWS + 20)
    marks = (tmp_path / "journal").read_text().splitlines()[1:]
    assert len(marks) > 3
    source = Source()
    _write(tmp_path, source)
    assert 0 < source.read_so_far < _ROWS


def test_a_complete_archive_whose_hash_was_not_made_is_finished(tmp_path: Path) -> None:
    wanted, reference = _whole(tmp_path)
    source = Source()
    again = _write(tmp_path, source)
    assert again.sha256 == reference.sha256
    assert (tmp_path / "w.irpa").read_bytes() == wanted
    assert source.read_so_far < _ROWS


def test_bytes_that_are_not_those_of_the_mark_are_written_anew(tmp_path: Path) -> None:
    wanted, _ = _whole(tmp_path / "whole")
    _stopped(tmp_path, _ROWS + 20)
    (partial,) = (path for path in tmp_path.iterdir() if path.suffix == ".partial")
    with partial.open("r+b") as file:
        file.seek(4096 + 8)
        file.write(b"\xff")
    source = Source()
    _write(tmp_path, source)
    assert source.read_so_far > 2 * _ROWS
    assert (tmp_path / "w.irpa").read_bytes() == wanted


def test_another_archive_is_written_anew(tmp_path: Path) -> None:
    wanted, _ = _whole(tmp_path / "whole")
    _stopped(tmp_path, _ROWS + 20, "another")
    source = Source()
    _write(tmp_path, source)
    assert source.read_so_far > 2 * _ROWS
    assert (tmp_path / "w.irpa").read_bytes() == wanted


@pytest.mark.parametrize("torn", ['{"offset": 12', '{"offset": 12}', "null", "[]"])
def test_a_torn_line_does_not_count(tmp_path: Path, torn: str) -> None:
    wanted, _ = _whole(tmp_path / "whole")
    _stopped(tmp_path, _ROWS + 20)
    with (tmp_path / "journal").open("a") as file:
        file.write(torn)
    source = Source()
    _write(tmp_path, source)
    assert source.read_so_far < _ROWS
    assert (tmp_path / "w.irpa").read_bytes() == wanted


@pytest.mark.parametrize("content", ["", "no json", json.dumps({"key": "two"})])
def test_a_journal_that_says_nothing(tmp_path: Path, content: str) -> None:
    (tmp_path / "journal").write_text(content)
    wanted, _ = _whole(tmp_path / "whole")
    _write(tmp_path, Source())
    assert (tmp_path / "w.irpa").read_bytes() == wanted


def test_a_journal_that_cannot_be_written_is_no_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_offset: int, _nonfinite: object) -> Callable[[str], None]:
        def note(_sha256: str) -> None:
            raise OSError(28, "No space left on device")

        return note

    journal = ArchiveJournal(tmp_path / "journal", "one")
    monkeypatch.setattr(journal, "marker", full)
    written = write_archive(tmp_path / "w.irpa", _ENTRIES, Source(), chunk_bytes=24, journal=journal)
    with pytest.raises(InputError, match="record the progress: No space left"):
        assert written.sha256
