"""Bound of a folder of cached entries: the least recently used are removed first."""

import contextlib
import fcntl
import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

_LOCK: Final = ".lock"

# A temporary file that no process has locked is removed after an hour: a process locks it as soon as it is there.
_ABANDONED_S: Final = 3600.0


class _Entry(NamedTuple):
    used: int
    size: int
    path: Path


def evict(
    directory: Path, limit: int, keep: Path | None = None, is_used: Callable[[Path], bool] = lambda path: False
) -> list[Path]:
    """Removes the least recently used entries of a folder until the rest fits a limit.

    An entry is a file or a folder; its time of modification is that of its last use. Names that begin with a dot are
    temporary: they count, and are removed once their process has died, which holds a lock (``flock``) on them, and an
    hour has passed. One process at a time evicts.

    Args:
        directory: folder of the entries.
        limit: bytes that the entries may have together.
        keep: entry that stays, whatever its size.
        is_used: returns True for an entry that stays because somebody uses it.

    Returns:
        The removed entries.

    Raises:
        OSError: the folder cannot be written.
    """
    removed: list[Path] = []
    with _locked(directory):
        entries = sorted(_entries(directory))
        total = sum(entry.size for entry in entries)
        for entry in entries:
            temporary = entry.path.name.startswith(".")
            abandoned = temporary and time.time() - entry.used / 1e9 > _ABANDONED_S
            if entry.path == keep or not (abandoned or (total > limit and not temporary)):
                continue
            if is_locked(entry.path) if temporary else is_used(entry.path):
                continue
            remove(entry.path)
            total -= entry.size
            removed.append(entry.path)
    return removed


def remove(path: Path) -> None:
    """Removes an entry; another process may have removed it before."""
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def is_locked(path: Path) -> bool:
    """Returns whether a process holds a lock on a file or folder."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def _entries(directory: Path) -> Iterator[_Entry]:
    for path in directory.iterdir():
        if path.name == _LOCK:
            continue
        with contextlib.suppress(FileNotFoundError):  # removed meanwhile
            yield _Entry(_used(path), _size(path), path)


def _used(path: Path) -> int:
    """Returns the time of the last use in ns; for a temporary folder that of the last change of a file in it."""
    times = [path.stat().st_mtime_ns]
    if path.name.startswith(".") and path.is_dir():
        times += [inner.stat().st_mtime_ns for inner in path.iterdir()]
    return max(times)


def _size(path: Path) -> int:
    if not path.is_dir():
        return path.stat().st_size
    return sum(_size(inner) for inner in path.iterdir())


@contextlib.contextmanager
def _locked(directory: Path) -> Iterator[None]:
    descriptor = os.open(directory / _LOCK, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
