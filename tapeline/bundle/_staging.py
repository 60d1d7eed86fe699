"""Writes a bundle's directory such that it appears whole or not at all."""

import contextlib
import ctypes
import errno
import fcntl
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from lang_core import InputError, checked_choices
from tapeline.bundle._files import MARK, REPORT
from tapeline.bundle._kernel_config import KernelConfig

_AT_FDCWD: Final = -100
_RENAME_EXCHANGE: Final = 2
_FULL: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_REFUSED: Final = (
    errno.EACCES,
    errno.EEXIST,
    errno.ELOOP,
    errno.ENAMETOOLONG,
    errno.ENOENT,
    errno.ENOTDIR,
    errno.EPERM,
    errno.EROFS,
)


@checked_choices
@contextlib.contextmanager
def staged(output: Path, *, resume: bool = False) -> Iterator[Path]:
    """Yields a directory beside ``output`` that replaces it when the block ends without an error.

    An earlier bundle stays untouched until then. After an error the directory is removed, unless the export was
    interrupted or killed: then it can be resumed.

    Args:
        output: path of the bundle.
        resume: True to keep the files of an earlier export in the directory, also if this one fails; otherwise the
            directory begins empty.

    Raises:
        InputError: ``output`` is not a bundle, another export writes there, or the file system refuses.
    """
    output = Path(os.path.abspath(output))
    check_output(output)
    staging = output.with_name(f".{output.name}.partial")
    with typed_refusals(output, staging), _locked(staging, output):
        try:
            if not resume:
                _empty(staging)
            with typed_refusals(output, staging):
                yield staging
            _publish(staging, output)
        except BaseException as error:
            if not resume and not isinstance(error, KeyboardInterrupt):
                shutil.rmtree(staging, ignore_errors=True)
            raise


def check_output(output: Path) -> None:
    """Checks, before any work, that a bundle may be written here.

    Raises:
        InputError: it may not be written; names the reason.
    """
    with typed_refusals(output, output):
        _check(output)


def _check(output: Path) -> None:
    if output.is_symlink() or (output.exists() and not output.is_dir()):
        raise InputError(f"output={output}: a file of that name exists: choose another directory")
    if output.is_dir() and any(output.iterdir()) and not (output / MARK).is_file():
        raise InputError(
            f"output={output}: the directory holds files that are not a bundle (it has no {MARK}), which an export "
            f"would replace: choose another directory, or empty this one (`overwrite` replaces bundles only)"
        )
    _check_strangers(output)
    above = next(parent for parent in output.parents if parent.exists())
    if not above.is_dir():
        raise InputError(f"output={output}: {above} is not a directory: choose another directory")
    if not os.access(above, os.W_OK | os.X_OK):
        raise InputError(f"output={output}: no permission to write in {above}: choose another directory")


def _check_strangers(output: Path) -> None:
    """Refuses to replace a bundle's directory that holds other files too."""
    try:
        own = {Path(name).parts[0] for name in (MARK, REPORT, *KernelConfig.read(output / MARK).sha256)}
    except InputError:
        return  # a bundle that cannot be read is replaced
    strangers = sorted(path.name for path in output.iterdir() if path.name not in own)
    if strangers:
        raise InputError(
            f"output={output}: beside the bundle the directory holds {', '.join(strangers[:5])}, which an export "
            f"would remove: move them, or choose another directory"
        )


@contextlib.contextmanager
def typed_refusals(output: Path, staging: Path) -> Iterator[None]:
    """Turns errors of the file system while an output is written into an InputError that names the file.

    Args:
        output: path of the output.
        staging: directory beside it that takes its place. An error without a file name belongs to the file that was
            written there last.
    """
    try:
        yield
    except OSError as error:
        if not _concerns(error.filename, output, staging):
            raise
        file = error.filename or _written_last(staging) or "the output"
        if error.errno == errno.EFBIG:
            raise InputError(
                f"output={output}: cannot write {file}: {error.strerror}: raise the limit of file sizes (ulimit -f), "
                f"or choose another file system"
            ) from error
        if error.errno in _FULL:
            free = shutil.disk_usage(next(parent for parent in output.parents if parent.exists())).free
            raise InputError(
                f"output={output}: the disk is full while writing {file} ({free} bytes are free): make room or choose "
                f"another directory"
            ) from error
        if error.errno in _REFUSED:
            raise InputError(
                f"output={output}: cannot write {file}: {error.strerror}: choose another directory"
            ) from error
        raise


def _written_last(staging: Path) -> str | None:
    """Returns the file below a directory that was changed last; None if there is none."""
    files = [(path.stat(), path) for path in staging.rglob("*") if path.is_file()]
    return str(max(files, key=lambda file: (file[0].st_mtime_ns, file[0].st_ino))[1]) if files else None


def _concerns(name: object, output: Path, staging: Path) -> bool:
    """Returns whether an error's file is the bundle's or a directory above it; errors of writing lack a file name."""
    if not isinstance(name, str):
        return name is None
    path = Path(name)
    return any(end.is_relative_to(path) or path.is_relative_to(end) for end in (output, staging))


@contextlib.contextmanager
def _locked(staging: Path, output: Path) -> Iterator[None]:
    """Creates the directory if it is missing, and locks it against other exports."""
    output.parent.mkdir(parents=True, exist_ok=True)
    staging.mkdir(exist_ok=True)
    with _opened(staging) as lock:
        _lock(lock, output)
        # Another export may have finished since it was opened, and renamed the directory.
        if not staging.exists() or not os.path.samestat(os.fstat(lock), os.stat(staging)):
            raise _busy(output)
        yield


@contextlib.contextmanager
def _opened(directory: Path) -> Iterator[int]:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _lock(descriptor: int, output: Path) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise _busy(output) from None


def _busy(output: Path) -> InputError:
    return InputError(f"output={output}: another export is writing there: wait for it, or choose another directory")


def _empty(directory: Path) -> None:
    """Removes the files that a killed export left."""
    for path in directory.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()


def _publish(staging: Path, output: Path) -> None:
    """Moves the directory into place at once; an earlier bundle takes the staging directory's name, and is removed."""
    if not output.exists():
        os.rename(staging, output)
        return
    with _opened(output) as previous:
        _lock(previous, output)  # once it has the staging directory's name, no other export may work in it
        if not _exchanged(staging, output):
            _swap(staging, output)
        shutil.rmtree(staging, ignore_errors=True)


def _swap(staging: Path, output: Path) -> None:
    """Exchanges two names in steps, if the file system cannot do so at once."""
    away = output.with_name(f".{output.name}.previous")
    shutil.rmtree(away, ignore_errors=True)  # of an export that was killed here
    os.rename(output, away)
    try:
        os.rename(staging, output)
    except OSError:
        os.rename(away, output)
        raise
    os.rename(away, staging)


def _exchanged(a: Path, b: Path) -> bool:
    """Exchanges two names at once; returns False if the file system cannot."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.renameat2(_AT_FDCWD, os.fsencode(a), _AT_FDCWD, os.fsencode(b), _RENAME_EXCHANGE) == 0:
        return True
    code = ctypes.get_errno()
    if code in (errno.ENOSYS, errno.EINVAL):
        return False
    raise OSError(code, os.strerror(code), str(b))
