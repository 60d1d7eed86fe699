import os
import tracemalloc
from pathlib import Path

import iree.runtime as rt
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lang_core import InputError, TensorSpec
from run_iree.archive._layout import ENTRY as ENTRY_FORM
from run_iree.archive._layout import HEADER, MAGIC, ArchiveEntry, archive_layout
from run_iree.archive._reader import read_archive_index

ENTRIES = [
    ArchiveEntry("model.norm.weight", "n", TensorSpec((5,), "f32")),
    ArchiveEntry("w", "w", TensorSpec((2, 3), "bf16")),
    ArchiveEntry("scalar", "s", TensorSpec((), "i64")),
    ArchiveEntry("empty", "e", TensorSpec((0, 4), "f16")),
]


def sample() -> bytes:
    layout = archive_layout(ENTRIES)
    return layout.head + bytes(layout.total_bytes - len(layout.head))


def test_reads_what_iree_writes(tmp_path: Path) -> None:
    arrays = {"abc": np.arange(6, dtype=np.float32), "de": np.arange(3, dtype=np.uint8)}
    index = rt.ParameterIndex()
    for key, array in arrays.items():
        index.add_buffer(key, array.view(np.uint8), metadata="note" if key == "abc" else None)
    index.create_archive_file(os.fspath(tmp_path / "iree.irpa"))
    records = read_archive_index(tmp_path / "iree.irpa")
    content = (tmp_path / "iree.irpa").read_bytes()
    assert {key: content[r.offset : r.offset + r.nbytes] for key, r in records.items()} == {
        key: array.tobytes() for key, array in arrays.items()
    }
    assert records["abc"].metadata == b"note"
    assert records["abc"].spec is None


def test_reads_our_specs(tmp_path: Path) -> None:
    path = tmp_path / "w.irpa"
    path.write_bytes(sample())
    assert [(r.name, r.spec) for r in read_archive_index(path).values()] == [(e.name, e.spec) for e in ENTRIES]


def changed(at: int, value: int, width: int = 8) -> bytes:
    content = bytearray(sample())
    content[at : at + width] = value.to_bytes(width, "little")
    return bytes(content)


ENTRY = 96
DAMAGED = [
    (b"", "truncated: 0 bytes, a parameter archive has 88 or more"),
    (sample()[:87], "truncated: 87 bytes"),
    (sample()[:2000], "the data end at byte .*, the file has 2000"),
    (b"GGUF" + sample()[4:], "begins with b'GGUF', expected b'IRPA'"),
    (changed(4, 1, 2), "version 1.0, header of 88 bytes"),
    (changed(8, 89), "header of 89 bytes"),
    (changed(16, 4096), "next at 4096"),
    (changed(32, 100), "100 entries do not fit a table of"),
    (changed(40, 2**63), "the entries end at byte"),
    (changed(ENTRY, 8), "entry 0 has 8 bytes"),
    (changed(ENTRY, 2**60), "entry 0 has"),
    (changed(ENTRY + 8, 1, 4), "entry 0 is of type 1 and 76 bytes, readable is type 2"),
    (changed(ENTRY + 28, 9999), "entry 0 refers beyond the names or the data"),
    (changed(ENTRY + 60, 9999), "entry 0 refers beyond the names or the data"),
    (sample().replace(b"scalar", b"\xffcalar"), "entry 2: the name is not UTF-8"),
]


@pytest.mark.parametrize(("content", "message"), DAMAGED)
def test_damaged_archive_is_named(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "w.irpa"
    path.write_bytes(content)
    with pytest.raises(InputError, match=message) as caught:
        read_archive_index(path)
    assert str(caught.value).startswith(str(path))


def test_names_must_differ(tmp_path: Path) -> None:
    entries = [ArchiveEntry("a1", "a", TensorSpec((2,), "f32")), ArchiveEntry("a2", "b", TensorSpec((2,), "f32"))]
    layout = archive_layout(entries)
    (tmp_path / "w.irpa").write_bytes(layout.head.replace(b"a2", b"a1") + bytes(4096))
    with pytest.raises(InputError, match="has 'a1' twice"):
        read_archive_index(tmp_path / "w.irpa")


def test_absent_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"w.irpa: cannot read the parameter archive: No such file"):
        read_archive_index(tmp_path / "w.irpa")


def test_skipped_entries_are_not_there(tmp_path: Path) -> None:
    (tmp_path / "w.irpa").write_bytes(changed(ENTRY + 8, 0, 4))
    assert list(read_archive_index(tmp_path / "w.irpa")) == ["w", "scalar", "empty"]


@settings(max_examples=500, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 600), st.integers(0, 255)), min_size=1, max_size=4), st.integers(0, 8192))
def test_mutated_archives_are_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, changes: list[tuple[int, int]], length: int
) -> None:
    content = bytearray(sample())
    for at, value in changes:
        content[at] = value
    if length < HEADER.size + 600:
        del content[length:]
    path = tmp_path_factory.getbasetemp() / "mutated.irpa"
    path.write_bytes(content)
    try:
        records = read_archive_index(path)
    except InputError:
        return
    assert all(record.offset + record.nbytes <= len(content) or not record.nbytes for record in records.values())


def _aliased(count: int, size: int) -> bytes:
    """An archive of parameters that name the same bytes, each one byte less of them than the one before."""
    table = b"".join(
        ENTRY_FORM.pack(ENTRY_FORM.size, 2, 0, 0, size - index, 0, 0, 64, 0, 0).ljust(80, b"\0")
        for index in range(count)
    )
    names = 96 + len(table)
    head = HEADER.pack(MAGIC, 0, 0, HEADER.size, 0, 0, count, 96, len(table), names, size, names + size, 0)
    return head.ljust(96, b"\0") + table + b"a" * size


@pytest.mark.parametrize(
    ("count", "size", "message"),
    [
        (400, 60_000, r"entry 1: names and metadata up to here have 119999 bytes, the file has 60000 for all"),
        (4000, 8 << 20, r"entry 0: a name of 8388608 and metadata of 0 bytes, 65536 are read"),
    ],
)
def test_names_that_share_their_bytes(tmp_path: Path, count: int, size: int, message: str) -> None:
    """Eight megabytes of such names became four gigabytes of text."""
    (tmp_path / "w.irpa").write_bytes(_aliased(count, size))
    tracemalloc.start()
    try:
        with pytest.raises(InputError, match=message):
            read_archive_index(tmp_path / "w.irpa")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 4 * (size + 80 * count) + (1 << 20)


def test_metadata_of_many_dimensions_is_no_spec(tmp_path: Path) -> None:
    note = f"f32[{','.join(['9' * 18] * 400)}]".encode()
    entry = ENTRY_FORM.pack(ENTRY_FORM.size, 2, 0, 0, 1, 1, len(note), 64, 0, 0).ljust(80, b"\0")
    head = HEADER.pack(MAGIC, 0, 0, HEADER.size, 0, 0, 1, 96, 80, 176, 1 + len(note), 4096 * 4, 0)
    (tmp_path / "w.irpa").write_bytes((head.ljust(96, b"\0") + entry + b"w" + note).ljust(4096 * 4, b"\0"))
    assert read_archive_index(tmp_path / "w.irpa")["w"].spec is None
