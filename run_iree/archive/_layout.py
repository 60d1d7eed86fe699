"""Layout of an IREE parameter archive (.irpa, version 0): offsets of parameters, and the bytes before the first one.

The format is that of IREE's ``runtime/src/iree/schemas/parameter_archive.h``: a header of 88 bytes, a table with an
entry of 76 bytes per parameter (each at a multiple of 16), the names and metadata, then the data. Several entries may
name the same data. Here the data begins at a page and each parameter at a multiple of 64 bytes, so that a mapped
archive is used without a copy.
"""

import struct
from collections.abc import Collection, Iterator
from typing import Final, NamedTuple

import numpy as np

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


def aligned(offset: int, alignment: int) -> int:
    """Returns the least multiple of ``alignment`` that is not below ``offset``."""
    return -(-offset // alignment) * alignment


class ArchiveLayout:
    """Archive without its data. It keeps nothing per entry if each entry has data of its own.

    Attributes:
        total_bytes: size of the file.

    Raises:
        InputError: two entries have the same name, or a name is empty or not valid Unicode.
    """

    def __init__(self, entries: Collection[ArchiveEntry]) -> None:
        self._entries: Final = entries
        self._text_bytes = 0
        for entry in entries:
            name, metadata = _text(entry)
            self._text_bytes += len(name) + len(metadata)
        self._table_bytes: Final = _ENTRY_STEP * (len(entries) - 1) + ENTRY.size if entries else 0
        self._base: Final = aligned(_TABLE + self._table_bytes + self._text_bytes, PAGE)
        self._shared: Final = None if self._is_plain() else self._grouped()
        self._end = 0
        for storage in self.each_storage():
            self._end = storage.offset - self._base + storage.spec.nbytes
        self.total_bytes: Final = aligned(self._base + self._end, PAGE)

    @property
    def head(self) -> bytes:
        """Bytes before the data."""
        return b"".join(self.head_pieces())

    @property
    def storages(self) -> tuple[Storage, ...]:
        """Contiguous data, in the order of the file."""
        return tuple(self.each_storage())

    def each_storage(self) -> Iterator[Storage]:
        """Yields contiguous data, in the order of the file."""
        if self._shared is not None:
            groups = ((key, spec, tuple(names)) for (key, spec), names in self._shared.items())
        else:
            groups = ((entry.key, entry.spec, (entry.name,)) for entry in self._entries)
        end = 0
        for key, spec, names in groups:
            offset = aligned(end, DATA_ALIGNMENT)
            yield Storage(key, spec, names, self._base + offset)
            end = offset + spec.nbytes

    def head_pieces(self) -> Iterator[bytes]:
        """Yields the bytes before the data, piece by piece.

        Raises:
            InputError: a name is empty or not valid Unicode.
        """
        ranges = (_TABLE, self._table_bytes, _TABLE + self._table_bytes, self._text_bytes, self._base, self._end)
        header = HEADER.pack(MAGIC, 0, 0, HEADER.size, 0, 0, len(self._entries), *ranges)
        yield header.ljust(_TABLE, b"\0")
        at, last = 0, len(self._entries) - 1
        for index, (entry, offset) in enumerate(zip(self._entries, self._offsets(), strict=True)):
            name, metadata = _text(entry)
            refs = (at, len(name), at + len(name), len(metadata))
            data = (offset - self._base, entry.spec.nbytes)
            row = ENTRY.pack(ENTRY.size, DATA_ENTRY, 0, *refs, DATA_ALIGNMENT, *data)
            yield row if index == last else row.ljust(_ENTRY_STEP, b"\0")
            at += len(name) + len(metadata)
        for entry in self._entries:
            yield b"".join(_text(entry))
        yield bytes(self._base - _TABLE - self._table_bytes - self._text_bytes)

    def _offsets(self) -> Iterator[int]:
        """Yields the offset of each entry's data."""
        if self._shared is None:
            yield from (storage.offset for storage in self.each_storage())
            return
        offsets = {name: storage.offset for storage in self.each_storage() for name in storage.names}
        yield from (offsets[entry.name] for entry in self._entries)

    def _is_plain(self) -> bool:
        """Returns whether all entries have names and data of their own; hashes alone are compared."""
        hashes = np.empty((2, len(self._entries)), np.int64)
        for index, entry in enumerate(self._entries):
            hashes[:, index] = hash(entry.name), hash((entry.key, entry.spec))
        hashes.sort()
        return bool((hashes[:, 1:] != hashes[:, :-1]).all())

    def _grouped(self) -> dict[tuple[str, TensorSpec], list[str]]:
        """Returns the names of the entries by their data."""
        groups: dict[tuple[str, TensorSpec], list[str]] = {}
        seen: set[str] = set()
        for entry in self._entries:
            if entry.name in seen:
                raise InputError(
                    f"parameter {entry.name!r} appears twice among the entries of the archive: give each entry its own "
                    f"name"
                )
            seen.add(entry.name)
            groups.setdefault((entry.key, entry.spec), []).append(entry.name)
        return groups


def archive_layout(entries: Collection[ArchiveEntry]) -> ArchiveLayout:
    """Lays out an archive. Entries with the same key and spec share their data (tied weights are stored once).

    Args:
        entries: parameters; gone through several times, always in the same order.

    Raises:
        InputError: two entries have the same name, or a name is empty or not valid Unicode.

    >>> archive_layout([ArchiveEntry("w", "model.w", TensorSpec((2, 3), "f32"))]).total_bytes
    8192
    """
    return ArchiveLayout(entries)


def _text(entry: ArchiveEntry) -> tuple[bytes, bytes]:
    """Returns the entry's name and its metadata, which is the spec as text."""
    try:
        name = entry.name.encode()
    except UnicodeEncodeError:
        raise InputError(f"parameter {entry.name!r} (key {entry.key!r}): the name is not valid Unicode") from None
    if not name:
        raise InputError(f"the entry of key {entry.key!r} has an empty name: a parameter of an archive needs one")
    return name, repr(entry.spec).encode()
