"""Writes a parameter archive straight from a checkpoint, a chunk at a time."""

import os
from collections.abc import Callable, Collection, Iterator
from typing import Final

import numpy as np

from lang_core import CheckpointError, InputError, WeightSource
from run_iree.archive._hashing import FollowingHash
from run_iree.archive._journal import MARK_BYTES, ArchiveJournal
from run_iree.archive._layout import ArchiveEntry, Storage, archive_layout
from run_iree.archive._output import Output, replacing
from run_iree.archive._pieces import Pieces
from run_iree.archive._values import NonFinite, convertible

Progress = Callable[[int, int], None]
"""Callback that is given the number of bytes written and that of the whole file."""


class WrittenArchive:
    """Written archive.

    Attributes:
        path: path of the file.
        total_bytes: size of the file.
        nonfinite: counts of NaNs and infinities of the entries that have any, by name.
    """

    def __init__(self, path: str, total_bytes: int, nonfinite: dict[str, NonFinite], digest: FollowingHash) -> None:
        self.path: Final = path
        self.total_bytes: Final = total_bytes
        self.nonfinite: Final = nonfinite
        self._digest: Final = digest

    @property
    def sha256(self) -> str:
        """Waits for the file's SHA-256, in hexadecimal.

        Raises:
            InputError: the file could not be read back.
        """
        return self._digest.hexdigest()


def write_archive(
    path: str | os.PathLike[str],
    entries: Collection[ArchiveEntry],
    source: WeightSource,
    *,
    chunk_bytes: int = 8 << 20,
    progress: Progress | None = None,
    journal: ArchiveJournal | None = None,
) -> WrittenArchive:
    """Writes an .irpa archive, atomically: a file beside ``path``, renamed when it is complete.

    Memory is a few chunks and pieces, whatever the sizes of model and tensors. Values of equal dtype are copied bit by
    bit; floating dtypes are converted by rounding to nearest even. The file is not forced to the disk (``fsync``): it
    is complete for every process, but a loss of power soon after may take it.

    Args:
        path: path of the file. An earlier one is replaced when the new one is complete.
        entries: parameters in the order of the file.
        source: source of their data.
        chunk_bytes: bytes of rows to read from the source at a time.
        progress: callback after every piece.
        journal: record of the progress, from which an interrupted run is resumed.

    Raises:
        CheckpointError: the source lacks a key, or has it in another shape.
        InputError: a dtype cannot be converted, a finite value would become infinite, the disk is full, or the file
            cannot be written; names the parameter or the file, the bytes needed and those free.
    """
    target = os.fspath(path)
    for entry in entries:
        _check(entry, source)
    layout = archive_layout(entries)
    report = progress or _silent
    with replacing(target, layout.total_bytes, journal) as (output, begun):
        if not output.written:
            for piece in layout.head_pieces():
                output.write(piece)
        nonfinite = dict(begun.nonfinite)
        marked = output.written
        pieces = Pieces(source, chunk_bytes)
        for storage in layout.each_storage():
            if output.written >= storage.offset + storage.spec.nbytes:
                continue  # another process wrote it; one without bytes has nothing to write
            output.pad_to(storage.offset)
            for count in _written(storage, pieces, output):
                if any(count):
                    before = nonfinite.get(storage.names[0], NonFinite(0, 0))
                    total = NonFinite(before.nan + count.nan, before.inf + count.inf)
                    nonfinite.update(dict.fromkeys(storage.names, total))
                report(output.written, layout.total_bytes)
                if journal is not None and output.written - marked >= MARK_BYTES:
                    marked = output.written
                    output.digest.mark(marked, journal.marker(marked, nonfinite))
        output.pad_to(layout.total_bytes)
        report(output.written, layout.total_bytes)
    return WrittenArchive(target, layout.total_bytes, nonfinite, output.digest)


def _written(storage: Storage, pieces: Pieces, output: Output) -> Iterator[NonFinite]:
    """Writes the missing part of contiguous data; yields the counts of each piece."""
    begin = (output.written - storage.offset) // storage.spec.dtype.itemsize
    for piece, count in pieces.read(ArchiveEntry(storage.names[0], storage.key, storage.spec), begin):
        output.write(piece.view(np.uint8).data)
        yield count


def _silent(done: int, total: int) -> None:
    """Reports nothing."""


def _check(entry: ArchiveEntry, source: WeightSource) -> None:
    spec = source.spec(entry.key)
    if spec.shape != entry.spec.shape:
        raise CheckpointError(
            f"parameter {entry.name!r}: {entry.key!r} in {source.origin(entry.key)} has shape {list(spec.shape)}, "
            f"expected {list(entry.spec.shape)}"
        )
    if not convertible(spec.dtype, entry.spec.dtype):
        raise InputError(
            f"parameter {entry.name!r}: {entry.key!r} in {source.origin(entry.key)} is {spec.dtype.name}, "
            f"requested is {entry.spec.dtype.name}: only floating dtypes are converted"
        )
