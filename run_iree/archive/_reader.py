"""Reads the index of a parameter archive (.irpa, version 0): names, offsets and sizes."""

import os
import re
from collections.abc import Mapping
from typing import BinaryIO, Final, NamedTuple

from lang_core import DTYPES, InputError, TensorSpec
from run_iree.archive._layout import DATA_ENTRY, ENTRY, HEADER, MAGIC, aligned

_SPEC: Final = re.compile(r"([a-z0-9]+)\[((?:[0-9]{1,18}(?:,[0-9]{1,18})*)?)\]", re.ASCII)
_SKIPPED_ENTRY: Final = 0
_MIN_ENTRY: Final = 60
_LONGEST: Final = 1 << 16  # bytes of a name, and of an entry's metadata
_LONGEST_SPEC: Final = 1000
_MOST_INDEX: Final = 1 << 28  # bytes of all entries, and of all names and metadata
_NAMES: Final = {dtype.name for dtype in DTYPES}


class ArchiveRecord(NamedTuple):
    """Parameter of an archive.

    Attributes:
        name: name.
        offset: first byte of the data, from the start of the file.
        nbytes: number of bytes.
        metadata: bytes that the writer attached.
        spec: shape and dtype from the metadata, if ``write_archive`` puts them; else None.
    """

    name: str
    offset: int
    nbytes: int
    metadata: bytes
    spec: TensorSpec | None


def read_archive_index(path: str | os.PathLike[str]) -> Mapping[str, ArchiveRecord]:
    """Returns the records of an archive by name, in the order of its table.

    Raises:
        InputError: the file cannot be read, is not an archive of version 0, is damaged, or has features that
            ``write_archive`` never uses (linked archives, splats, external files).
    """
    name = os.fspath(path)
    try:
        with open(name, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            fields = _header(file.read(HEADER.size), size, name)
            count, table, table_bytes, text, text_bytes, data, data_bytes = fields
            entries, texts = _segment(file, table, table_bytes), _segment(file, text, text_bytes)
    except OSError as error:
        raise InputError(f"{name}: cannot read the parameter archive: {error.strerror}") from None
    records: dict[str, ArchiveRecord] = {}
    at = used = 0
    for index in range(count):
        step, record, length = _entry(entries, at, texts, (data, data_bytes), f"{name}: entry {index}")
        at += step
        used += length
        if used > len(texts):
            raise InputError(
                f"{name}: entry {index}: names and metadata up to here have {used} bytes, the file has {len(texts)} "
                "for all, which entries do not share: write the archive again"
            )
        if record is None:
            continue
        if record.name in records:
            raise InputError(f"{name}: the parameter archive has {record.name!r} twice: write it again")
        records[record.name] = record
    return records


def _header(head: bytes, size: int, path: str) -> tuple[int, ...]:
    if len(head) < HEADER.size:
        raise InputError(f"{path}: truncated: {len(head)} bytes, a parameter archive has {HEADER.size} or more")
    magic, major, minor, header_bytes, following, _, *fields = HEADER.unpack(head)
    if magic != MAGIC:
        raise InputError(f"{path}: begins with {head[:4]!r}, expected b'IRPA': not a parameter archive")
    if (major, minor, header_bytes, following) != (0, 0, HEADER.size, 0):
        raise InputError(
            f"{path}: a parameter archive of version {major}.{minor}, header of {header_bytes} bytes, "
            f"next at {following}; readable is version 0.0 with {HEADER.size} bytes and no next"
        )
    for what, offset, length in zip(("entries", "names", "data"), fields[1::2], fields[2::2], strict=True):
        if length and offset + length > size:
            raise InputError(f"{path}: the {what} end at byte {offset + length}, the file has {size}: write it again")
    if max(fields[2], fields[4]) > _MOST_INDEX:
        raise InputError(
            f"{path}: {fields[2]} bytes of entries and {fields[4]} of names, {_MOST_INDEX} are read: not an archive "
            "of a model"
        )
    if fields[0] * _MIN_ENTRY > fields[2]:
        raise InputError(f"{path}: {fields[0]} entries do not fit a table of {fields[2]} bytes: write it again")
    return tuple(fields)


def _segment(file: BinaryIO, offset: int, length: int) -> bytes:
    if not length:  # the offset is then arbitrary
        return b""
    file.seek(offset)
    return file.read(length)


def _entry(
    entries: bytes, at: int, texts: bytes, data: tuple[int, int], where: str
) -> tuple[int, ArchiveRecord | None, int]:
    """Returns the entry's size in the table, its record (None for an entry to skip) and the bytes of its texts."""
    size, kind = int.from_bytes(entries[at : at + 8], "little"), int.from_bytes(entries[at + 8 : at + 12], "little")
    if size < _MIN_ENTRY or at + size > len(entries):
        raise InputError(f"{where} has {size} bytes, the table ends at {len(entries)}: write the archive again")
    if kind == _SKIPPED_ENTRY:
        return aligned(size, 16), None, 0
    if kind != DATA_ENTRY or size < ENTRY.size:
        raise InputError(f"{where} is of type {kind} and {size} bytes, readable is type {DATA_ENTRY} of {ENTRY.size}")
    _, _, _, name_at, name_bytes, note_at, note_bytes, _, begin, nbytes = ENTRY.unpack_from(entries, at)
    if name_at + name_bytes > len(texts) or note_at + note_bytes > len(texts) or begin + nbytes > data[1]:
        raise InputError(f"{where} refers beyond the names or the data: write the archive again")
    if name_bytes > _LONGEST or note_bytes > _LONGEST:
        raise InputError(f"{where}: a name of {name_bytes} and metadata of {note_bytes} bytes, {_LONGEST} are read")
    try:
        name = texts[name_at : name_at + name_bytes].decode()
    except UnicodeDecodeError:
        raise InputError(f"{where}: the name is not UTF-8: write the archive again") from None
    metadata = texts[note_at : note_at + note_bytes]
    record = ArchiveRecord(name, data[0] + begin, nbytes, metadata, _spec(metadata, nbytes))
    return aligned(size, 16), record, name_bytes + note_bytes


def _spec(metadata: bytes, nbytes: int) -> TensorSpec | None:
    if len(metadata) > _LONGEST_SPEC:
        return None
    match = _SPEC.fullmatch(metadata.decode("ascii", "replace"))
    if match is None or match[1] not in _NAMES:
        return None
    spec = TensorSpec(tuple(map(int, match[2].split(","))) if match[2] else (), match[1])
    return spec if spec.nbytes == nbytes else None
