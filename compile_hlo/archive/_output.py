"""A file that appears complete or not at all, hashed while it is written."""

import contextlib
import ctypes
import errno
import os
import secrets
import shutil
from collections.abc import Iterator
from typing import Final

from compile_hlo.archive._hashing import FollowingHash
from lang_core import InputError

_ANNOUNCE_BYTES: Final = 8 << 20  # how far the hash is told of what was written: seldom, for it takes the writer's turn
_KEEP_SIZE: Final = 1  # FALLOC_FL_KEEP_SIZE: the file's length says how much is written


class Output:
    """The file being written, from its start to its end; every failure of it is an InputError.

    Attributes:
        digest: the hash of what is written.
        written: the number of bytes so far.
    """

    def __init__(self, temporary: str, target: str, total_bytes: int) -> None:
        self._target: Final = target
        self._total_bytes: Final = total_bytes
        self.written = self._announced = 0
        with self.guarded():
            self._descriptor: Final = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
            try:
                _reserve(self._descriptor, total_bytes)
                self.digest: Final = FollowingHash(os.dup(self._descriptor), target)
            except BaseException:
                os.close(self._descriptor)
                os.unlink(temporary)
                raise

    def write(self, data: bytes | memoryview) -> None:
        """Appends."""
        left = memoryview(data)
        with self.guarded():
            while left:
                left = left[os.write(self._descriptor, left) :]
        self.written += len(data)
        if self.written - self._announced >= _ANNOUNCE_BYTES:
            self._announced = self.written
            self.digest.advance(self.written)

    def pad_to(self, offset: int) -> None:
        """Appends zeros up to an offset."""
        self.write(bytes(offset - self.written))

    def close(self) -> None:
        """Closes the file; the hash goes on."""
        self.digest.advance(self.written)
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
    """Gives the file its room at once, where the file system can: writing is then twice as fast, and never ENOSPC.

    posix_fallocate would write every block on a file system that cannot.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    offset = ctypes.c_int64
    if size and libc.fallocate(descriptor, _KEEP_SIZE, offset(0), offset(size)) != 0:
        code = ctypes.get_errno()
        if code not in (errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL, errno.EINTR):
            raise OSError(code, os.strerror(code))


@contextlib.contextmanager
def replacing(target: str, total_bytes: int) -> Iterator[Output]:
    """A file beside the target that becomes the target, or is removed where the block raises.

    Raises:
        InputError: the place cannot be written, or has fewer than ``total_bytes`` free bytes.
    """
    if os.path.isdir(target):
        raise InputError(f"{target}: is a directory, expected a place for a file of parameters: name another")
    directory, name = os.path.split(target)
    _check_space(target, directory, total_bytes)
    temporary = os.path.join(directory, f".{name}.{secrets.token_hex(4)}.partial")
    output = Output(temporary, target, total_bytes)
    try:
        try:
            yield output
        finally:
            output.close()
        with output.guarded():
            os.replace(temporary, target)
        output.digest.finish()
    except BaseException:
        output.digest.cancel()
        with contextlib.suppress(OSError):  # what is being raised says more
            os.unlink(temporary)
        raise


def _check_space(target: str, directory: str, total_bytes: int) -> None:
    try:
        free = _free_bytes(target)
    except OSError as error:
        raise InputError(
            f"{target}: cannot write the parameters: {error.strerror}: {directory!r}; name another place"
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
    return f"{total_bytes} bytes are needed, {free} are free there: free some, or name another place"
