"""File that appears complete or not at all, hashed while it is written."""

import contextlib
import ctypes
import errno
import os
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from lang_core import InputError
from run_iree.archive._hashing import FollowingHash
from run_iree.archive._journal import ArchiveJournal, Progress, partial_name

_ANNOUNCE_BYTES: Final = 8 << 20  # between two calls of the hash's advance, each of which costs the writer its turn
# Linux caches the bytes of one write in pages as large as their length and alignment in the file allow (ext4 since
# 6.16, XFS before), and maps the file by the CPU's large pages only if these are whole.
UNIT_BYTES: Final = 2 << 20  # a large page of x86-64 and arm64; units of 4 and 8 MiB were no faster
_KEEP_SIZE: Final = 1  # FALLOC_FL_KEEP_SIZE: the file's length says how much is written


class Output:
    """File being written from start to end; every failure is an InputError.

    Attributes:
        digest: hash of the bytes in the file.
        written: number of bytes so far, including those that wait for the rest of their unit.
    """

    def __init__(self, temporary: str, target: str, total_bytes: int, progress: Progress) -> None:
        self._target: Final = target
        self._total_bytes: Final = total_bytes
        self.written = self._stored = self._announced = progress.offset
        self._units: Final = Units(progress.offset)
        flags = os.O_RDWR | os.O_CLOEXEC | (0 if progress.offset else os.O_CREAT | os.O_EXCL)
        with self.guarded():
            self._descriptor: Final = os.open(temporary, flags, 0o666)
            try:
                os.ftruncate(self._descriptor, progress.offset)
                os.lseek(self._descriptor, progress.offset, os.SEEK_SET)
                _reserve(self._descriptor, total_bytes)
                self.digest: Final = FollowingHash(
                    os.dup(self._descriptor), target, progress.offset, progress.digest.copy()
                )
            except BaseException:
                os.close(self._descriptor)
                os.unlink(temporary)
                raise

    def write(self, data: bytes | memoryview) -> None:
        """Appends bytes; those that do not complete a unit wait for the following ones, or for the end."""
        self.written += len(data)
        for unit in self._units.add(data):
            self._put(unit)

    def _put(self, left: memoryview) -> None:
        with self.guarded():
            while left:
                count = os.write(self._descriptor, left)
                self._stored += count
                left = left[count:]
        if self._stored - self._announced >= _ANNOUNCE_BYTES:
            self._announced = self._stored
            self.digest.advance(self._stored)

    def pad_to(self, offset: int) -> None:
        """Appends zeros up to an offset; does nothing beyond it."""
        self.write(bytes(max(0, offset - self.written)))

    def close(self) -> None:
        """Writes the pending data (nothing after a failed write) and closes the file; the hash continues."""
        try:
            self._put(self._units.rest())
        finally:
            self.digest.advance(self._stored)
            with self.guarded():
                os.close(self._descriptor)

    @contextlib.contextmanager
    def guarded(self) -> Iterator[None]:
        """Turns a failure into an InputError that names the file, the bytes needed and those free."""
        try:
            yield
        except OSError as error:
            space = _space(self._target, self._total_bytes)
            raise InputError(f"{self._target}: cannot write the parameters: {error.strerror}; {space}") from error


def _reserve(descriptor: int, size: int) -> None:
    """Allocates the whole file at once if the file system can: writing is then twice as fast and never ENOSPC.

    posix_fallocate would write every block on a file system that cannot.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    offset = ctypes.c_int64
    if size and libc.fallocate(descriptor, _KEEP_SIZE, offset(0), offset(size)) != 0:
        code = ctypes.get_errno()
        if code not in (errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL, errno.EINTR):
            raise OSError(code, os.strerror(code))


@contextlib.contextmanager
def replacing(
    target: str, total_bytes: int, journal: ArchiveJournal | None = None
) -> Iterator[tuple[Output, Progress]]:
    """Yields a file beside the target that replaces the target, or is removed if the block raises.

    With a journal the file has a fixed name, stays if the block raises, and is resumed at the journal's last mark.

    Raises:
        InputError: the place cannot be written, or has fewer than ``total_bytes`` free bytes.
    """
    if os.path.isdir(target):
        raise InputError(f"{target}: is a directory, expected the path of a parameter archive: choose another path")
    directory, name = os.path.split(target)
    unique = f"{name}.{secrets.token_hex(4)}" if journal is None else name
    temporary = os.path.join(directory, partial_name(unique))
    progress = Progress() if journal is None else _resumed(journal, Path(temporary), Path(target))
    _check_space(target, directory, total_bytes - progress.offset)
    output = Output(temporary, target, total_bytes, progress)
    try:
        try:
            yield output, progress
        finally:
            output.close()
        with output.guarded():
            os.replace(temporary, target)
        output.digest.finish()
    except BaseException:
        if journal is not None:
            output.digest.finish(wait=True)  # writes the marks that are due
            raise
        output.digest.cancel()
        with contextlib.suppress(OSError):  # the error being raised says more
            os.unlink(temporary)
        raise


def _resumed(journal: ArchiveJournal, temporary: Path, target: Path) -> Progress:
    """Returns the progress of an interrupted run, with its file renamed to ``temporary``; removes a useless file."""
    if target.is_file() and target.stat().st_nlink == 1 and not temporary.exists():
        target.rename(temporary)  # it was complete, and its hash was not
    progress = journal.progress(temporary)
    if not progress.offset:
        temporary.unlink(missing_ok=True)
    journal.begin(progress)
    return progress


def _check_space(target: str, directory: str, total_bytes: int) -> None:
    try:
        free = _free_bytes(target)
    except OSError as error:
        raise InputError(
            f"{target}: cannot write the parameters: {error.strerror}: {directory!r}; choose another directory"
        ) from error
    if free < total_bytes:
        raise InputError(f"{target}: no space for the parameters: {_space(target, total_bytes)}")


def _free_bytes(target: str) -> int:
    return shutil.disk_usage(os.path.dirname(target) or ".").free


def _space(target: str, total_bytes: int) -> str:
    try:
        free = str(_free_bytes(target))
    except OSError:
        free = "an unknown number"
    return f"{total_bytes} bytes are needed, {free} are free there: free some, or choose another directory"


class Units:
    """Buffer that takes the bytes of a file in order and returns units that end at multiples of their size.

    It holds less than a unit. Whole units within a piece are returned without a copy.
    """

    def __init__(self, offset: int) -> None:
        """Begins at a byte of the file, and so with the rest of the unit in which that lies."""
        self._unit: Final = UNIT_BYTES
        self._buffer: Final = memoryview(bytearray(self._unit))
        self._held = 0
        self._room = self._unit - offset % self._unit

    def add(self, data: bytes | memoryview) -> Iterator[memoryview]:
        """Takes a piece of any size; yields complete units, each valid until the next is taken."""
        left = memoryview(data)
        while len(left) >= self._room:
            if self._held:
                left = self._keep(left, self._room)
                yield self.rest()
            else:
                count = len(left) - (len(left) - self._room) % self._unit
                self._room = self._unit
                yield left[:count]
                left = left[count:]
        self._keep(left, len(left))

    def _keep(self, data: memoryview, count: int) -> memoryview:
        """Copies the first ``count`` bytes into the unit; returns the others."""
        self._buffer[self._held : self._held + count] = data[:count]
        self._held += count
        self._room -= count
        return data[count:]

    def rest(self) -> memoryview:
        """Returns the bytes held and lets go of them; the next byte begins a unit."""
        held, self._held, self._room = self._held, 0, self._unit
        return self._buffer[:held]
