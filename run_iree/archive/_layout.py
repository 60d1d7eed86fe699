"""Layout of an IREE parameter archive (.irpa, version 0): offsets of parameters, and the bytes before the first one.

The format is that of IREE's ``runtime/src/iree/schemas/parameter_archive.h``: a header of 88 bytes, a table with an
entry of 76 bytes per parameter (each at a multiple of 16), the names and metadata, then the data. Several entries may
name the same data. Here the data begins at a page and each parameter at a multiple of 64 bytes, so that a mapped
archive is used without a copy.
"""

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

from lang_core import InputError, TensorSpec

MAGIC: Final = 0x41505249  # "IRPA"
HEADER: Final = struct.Struct("<IHHQQQQQQQQQQ")
ENTRY: Final = struct.Struct("<QIQQQQQQQQ")
DATA_ENTRY: Final = 2  # type of an entry whose data lies in the file
DATA_ALIGNMENT: Final = 64
PAGE: Final = 4096
_ENTRY_STEP: Final = 80
_TABLE: Final = 96


class ArchiveEntry(NamedTuple):
    """Parameter to write.

    Attributes:
        name: name in the archive.
        key: key in the source.
        spec: shape, and the dtype to store.
    """

    name: str
    key: str
    spec: TensorSpec


class Storage(NamedTuple):
    """Contiguous data that one or more entries name.

    Attributes:
        key: key in the source.
        spec: stored shape and dtype.
        names: names of the entries.
        offset: first byte, from the start of the file.
    """

    key: str
    spec: TensorSpec
    names: tuple[str, ...]
    offset: int


class ArchiveLayout(NamedTuple):
    """Archive without its data.

    Attributes:
        head: bytes before the data.
        storages: contiguous data, in the order of the file.
        total_bytes: size of the file.
    """

    head: bytes
    storages: tuple[Storage, ...]
    total_bytes: int


def aligned(offset: int, alignment: int) -> int:
    """Returns the least multiple of ``alignment`` that is not below ``offset``."""
    return -(-offset // alignment) * alignment


def archive_layout(entries: Sequence[ArchiveEntry]) -> ArchiveLayout:
    """Lays out an archive. Entries with the same key and spec share their data (tied weights are stored once).

    Raises:
        InputError: two entries have the same name, or a name is empty or not valid Unicode.

    >>> archive_layout([ArchiveEntry("w", "model.w", TensorSpec((2, 3), "f32"))]).total_bytes
    8192
    """
    texts = [_text(entry) for entry in entries]
    if len({entry.name for entry in entries}) != len(entries):
        seen: set[str] = set()
        twice = next(entry.name for entry in entries if entry.name in seen or seen.add(entry.name))
        raise InputError(
            f"parameter {twice!r} appears twice among the entries of the archive: give each entry its own name"
        )
    sharers: dict[tuple[str, TensorSpec], list[str]] = {}
    for entry in entries:
        sharers.setdefault((entry.key, entry.spec), []).append(entry.name)
    table_bytes = _ENTRY_STEP * (len(entries) - 1) + ENTRY.size if entries else 0
    text_bytes = sum(len(name) + len(metadata) for name, metadata in texts)
    base = aligned(_TABLE + table_bytes + text_bytes, PAGE)
    storages, end = [], 0
    for (key, spec), names in sharers.items():
        offset = aligned(end, DATA_ALIGNMENT)
        storages.append(Storage(key, spec, tuple(names), base + offset))
        end = offset + spec.nbytes
    offsets = {name: storage.offset - base for storage in storages for name in storage.names}
    head = bytearray(base)
    ranges = (_TABLE, table_bytes, _TABLE + table_bytes, text_bytes, base, end)
    HEADER.pack_into(head, 0, MAGIC, 0, 0, HEADER.size, 0, 0, len(entries), *ranges)
    _write_table(head, entries, texts, offsets, _TABLE + table_bytes)
    return ArchiveLayout(bytes(head), tuple(storages), aligned(base + end, PAGE))


def _text(entry: ArchiveEntry) -> tuple[bytes, bytes]:
    """Returns the entry's name and its metadata, which is the spec as text."""
    try:
        name = entry.name.encode()
    except UnicodeEncodeError:
        raise InputError(f"parameter {entry.name!r} (key {entry.key!r}): the name is not valid Unicode") from None
    if not name:
        raise InputError(f"the entry of key {entry.key!r} has an empty name: a parameter of an archive needs one")
    return name, repr(entry.spec).encode()


def _write_table(
    head: bytearray,
    entries: Sequence[ArchiveEntry],
    texts: Sequence[tuple[bytes, bytes]],
    offsets: dict[str, int],
    text_base: int,
) -> None:
    at = 0
    for index, (entry, (name, metadata)) in enumerate(zip(entries, texts, strict=True)):
        refs = (at, len(name), at + len(name), len(metadata))
        data = (offsets[entry.name], entry.spec.nbytes)
        ENTRY.pack_into(head, _TABLE + _ENTRY_STEP * index, ENTRY.size, DATA_ENTRY, 0, *refs, DATA_ALIGNMENT, *data)
        head[text_base + at : text_base + at + len(name) + len(metadata)] = name + metadata
        at += len(name) + len(metadata)
