"""Files that appear complete or not at all: places, full disks, failing and short writes."""

import errno
import hashlib
import os
import shutil
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lang_core import InputError
from run_iree.archive import _output, _pieces
from run_iree.archive._archive_testing import ARRAYS, Arrays, loaded_by_iree, open_below, same
from run_iree.archive._writer import write_archive


def test_places_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is a directory, expected the path of a parameter archive"):
        write_archive(tmp_path, same(ARRAYS), Arrays(ARRAYS))
    with pytest.raises(
        InputError, match=r"absent/w.irpa: cannot write the parameters: No such file .*choose another directory"
    ):
        write_archive(tmp_path / "absent" / "w.irpa", same(ARRAYS), Arrays(ARRAYS))
    with pytest.raises(
        InputError, match=r"cannot write the parameters: File name too long; 8192 bytes are needed, \d+ are"
    ):
        write_archive(tmp_path / ("w" * 250), same(ARRAYS), Arrays(ARRAYS))


def test_a_full_disk_is_seen_before_any_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage(tmp_path)._replace(free=8191)
    monkeypatch.setattr(_output.shutil, "disk_usage", lambda path: usage)
    with pytest.raises(
        InputError, match=r"w.irpa: no space for the parameters: 8192 bytes are needed, 8191 are free there"
    ):
        write_archive(tmp_path / "w.irpa", same(ARRAYS), Arrays(ARRAYS))
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
@pytest.mark.parametrize("call", [0, 1, 4])
def test_failing_write_leaves_the_earlier_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, call: int
) -> None:
    path = tmp_path / "w.irpa"
    path.write_bytes(b"before")
    monkeypatch.setattr(_output, "UNIT_BYTES", 100)
    real, calls = os.write, iter(range(100))

    def failing(descriptor: int, data: memoryview) -> int:
        if next(calls) == call:
            raise OSError(code, os.strerror(code))
        return real(descriptor, data)

    monkeypatch.setattr(_output.os, "write", failing)
    with pytest.raises(InputError, match=rf"w.irpa: cannot write the parameters: {os.strerror(code)}; 8192 bytes are"):
        write_archive(path, same(ARRAYS), Arrays(ARRAYS))
    assert path.read_bytes() == b"before"
    assert os.listdir(tmp_path) == ["w.irpa"]
    assert open_below(tmp_path) == []


def test_interrupt_leaves_nothing(tmp_path: Path) -> None:
    def interrupted(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_archive(tmp_path / "w.irpa", same(ARRAYS), Arrays(ARRAYS), progress=interrupted)
    assert os.listdir(tmp_path) == []


def test_short_writes_are_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.write
    monkeypatch.setattr(_output.os, "write", lambda descriptor, data: real(descriptor, data[:17]))
    monkeypatch.setattr(_output, "UNIT_BYTES", 700)
    written = write_archive(tmp_path / "w.irpa", same(ARRAYS), Arrays(ARRAYS))
    assert loaded_by_iree(tmp_path / "w.irpa")["p.w"] == ARRAYS["w"].tobytes()
    assert written.sha256 == hashlib.sha256((tmp_path / "w.irpa").read_bytes()).hexdigest()


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 9000), st.integers(8, 9000), st.integers(1, 100))
def test_every_write_is_of_whole_units(
    tmp_path_factory: pytest.TempPathFactory, unit: int, piece: int, chunk_bytes: int
) -> None:
    """The system's large pages need that; pieces may be smaller or larger."""
    path = tmp_path_factory.getbasetemp() / "units.irpa"
    write_archive(path, same(ARRAYS), Arrays(ARRAYS))
    wanted, places = path.read_bytes(), list[tuple[int, int]]()
    real = os.write

    def noting(descriptor: int, data: memoryview) -> int:
        places.append((os.lseek(descriptor, 0, os.SEEK_CUR), len(data)))
        return real(descriptor, data)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_output.os, "write", noting)
        patch.setattr(_output, "UNIT_BYTES", unit)
        patch.setattr(_pieces, "_PIECE_BYTES", piece)
        written = write_archive(path, same(ARRAYS), Arrays(ARRAYS), chunk_bytes=chunk_bytes)
    assert path.read_bytes() == wanted
    assert written.sha256 == hashlib.sha256(wanted).hexdigest()
    assert not any(start % unit for start, _ in places)
    assert not any(size % unit for _, size in places[:-1])


def test_no_descriptor_is_left_open(tmp_path: Path) -> None:
    for _ in range(3):
        written = write_archive(tmp_path / "w.irpa", same(ARRAYS), Arrays(ARRAYS))
        assert written.sha256
    assert open_below(tmp_path) == []
