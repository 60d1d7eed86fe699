"""Files that are mapped at the first read, after checking that they did not change since their headers were read."""

import contextlib
import mmap
import os
import stat
from collections.abc import Iterator
from typing import Final, Self

from lang_core import CheckpointError


class _Identity(tuple[int, int, int, int]):
    """Device, inode, size and time of change, which tell whether a file was replaced or rewritten."""

    @classmethod
    def of(cls, descriptor: int) -> Self:
        now = os.fstat(descriptor)
        return cls((now.st_dev, now.st_ino, now.st_size, now.st_mtime_ns))


class MappedFile:
    """Regular file, read-only.

    Args:
        path: path of the file.
        kind: kind of file that is expected, for messages, e.g. ``"safetensors file"``.
    """

    def __init__(self, path: str | os.PathLike[str], kind: str) -> None:
        self.path: Final = os.fspath(path)
        self._kind: Final = kind
        self._map: mmap.mmap | None = None
        self._closed = False
        self._identity: _Identity | None = None

    @contextlib.contextmanager
    def opened(self) -> Iterator[int]:
        """Opens a descriptor of the file, which must be the same file at each call.

        Raises:
            CheckpointError: the file is absent, not a regular file, unreadable, or changed.
        """
        try:
            descriptor = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # a FIFO must not block us
            try:
                if not stat.S_ISREG(mode := os.fstat(descriptor).st_mode):
                    kind = "a directory" if stat.S_ISDIR(mode) else "not a regular file"
                    raise CheckpointError(f"{self.path}: is {kind}, expected a {self._kind}")
                if self._identity is None:
                    self._identity = _Identity.of(descriptor)
                elif _Identity.of(descriptor) != self._identity:
                    raise CheckpointError(f"{self.path}: the file changed since its header was read: open it again")
                yield descriptor
            finally:
                os.close(descriptor)
        except FileNotFoundError:
            raise CheckpointError(f"{self.path}: no such file, expected a {self._kind}") from None
        except (OSError, ValueError) as error:  # ValueError: a NUL in the path, a file that cannot be mapped
            raise CheckpointError(f"{self.path}: cannot read the {self._kind}: {error}") from None

    def mapped(self) -> mmap.mmap:
        """Returns the map of the whole file.

        Raises:
            CheckpointError: the file was closed, or as for ``opened``.
        """
        if self._closed:
            raise CheckpointError(f"{self.path}: a tensor was asked of a closed checkpoint: open it again")
        if self._map is None:
            with self.opened() as descriptor:
                self._map = mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ)
        return self._map

    def will_read(self, begin: int, nbytes: int) -> None:
        """Starts reading these bytes from disk, if the file is mapped."""
        page = begin - begin % mmap.PAGESIZE
        if nbytes and self._map is not None and hasattr(mmap, "MADV_WILLNEED"):
            self._map.madvise(mmap.MADV_WILLNEED, page, begin + nbytes - page)

    def close(self) -> None:
        """Releases the map, which goes with the last live view of it. Closing twice is harmless."""
        self._closed = True
        mapped, self._map = self._map, None
        if mapped is not None:
            with contextlib.suppress(BufferError):  # a view is alive
                mapped.close()
