"""A bundle's directory appears whole or not at all."""

import contextlib
import ctypes
import errno
import fcntl
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from lang_core import InputError

# Whoever holds this file has a bundle in front of him.
MARK: Final = "kernel_config.json"
_AT_FDCWD: Final = -100
_RENAME_EXCHANGE: Final = 2


@contextlib.contextmanager
def staged(output: Path) -> Iterator[Path]:
    """Yields an empty directory beside ``output`` that takes its place when the block ends without an error.

    An earlier bundle stays untouched until then. Whatever goes wrong, the directory goes.

    Raises:
        InputError: ``output`` is something else than a bundle, another export writes there, or the file
            system refuses.
    """
    output = Path(os.path.abspath(output))
    check_output(output)
    staging = output.with_name(f".{output.name}.partial")
    with _refusals(output):
        output.parent.mkdir(parents=True, exist_ok=True)
        staging.mkdir(exist_ok=True)
        lock = os.open(staging, os.O_RDONLY)
    try:
        _lock(lock, output)
        try:
            with _refusals(output):
                _empty(staging)
                yield staging
                _publish(staging, output)
        finally:
            shutil.rmtree(staging, ignore_errors=True)
    finally:
        os.close(lock)


def check_output(output: Path) -> None:
    """Checks, before any work, that a bundle may be written here.

    Raises:
        InputError: it may not.
    """
    if output.is_symlink() or (output.exists() and not output.is_dir()):
        raise InputError(f"--output {output}: there is a file of that name: choose another directory")
    if output.is_dir() and any(output.iterdir()) and not (output / MARK).is_file():
        raise InputError(
            f"--output {output}: the directory holds other things than a bundle (it has no {MARK}), which an export "
            f"would replace: choose another directory, or empty this one"
        )
    above = next(parent for parent in output.parents if parent.exists())
    if not above.is_dir() or not os.access(above, os.W_OK | os.X_OK):
        raise InputError(f"--output {output}: no permission to write in {above}: choose another directory")


@contextlib.contextmanager
def _refusals(output: Path) -> Iterator[None]:
    """Turns what the file system refuses below the output's parent into an error of the user's world."""
    try:
        yield
    except OSError as error:
        if error.filename is not None and not str(error.filename).startswith(str(output.parent)):
            raise
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            free = shutil.disk_usage(next(p for p in (output, *output.parents) if p.exists())).free
            raise InputError(
                f"--output {output}: the disk is full while writing {error.filename or 'the bundle'} ({free} bytes are "
                f"free): make room or choose another directory"
            ) from error
        if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG):
            raise InputError(
                f"--output {output}: cannot write {error.filename or 'the bundle'}: {error.strerror}: choose another "
                f"directory"
            ) from error
        raise


def _lock(descriptor: int, output: Path) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise InputError(
            f"--output {output}: another export is writing there: wait for it, or choose another"
        ) from None


def _empty(directory: Path) -> None:
    """Removes what a killed export left."""
    for path in directory.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()


def _publish(staging: Path, output: Path) -> None:
    """Puts the directory in place at once; an earlier bundle ends up where the staging directory was."""
    if not output.exists():
        os.rename(staging, output)
        return
    libc = ctypes.CDLL(None, use_errno=True)
    names = os.fsencode(staging), os.fsencode(output)
    if libc.renameat2(_AT_FDCWD, names[0], _AT_FDCWD, names[1], _RENAME_EXCHANGE) == 0:
        return
    code = ctypes.get_errno()
    if code not in (errno.ENOSYS, errno.EINVAL):
        raise OSError(code, os.strerror(code), str(output))
    previous = output.with_name(f".{output.name}.previous")  # a file system that cannot exchange two names
    os.rename(output, previous)
    os.rename(staging, output)
    shutil.rmtree(previous)
