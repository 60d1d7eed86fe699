"""Records of files of bundles in the user's cache: compiled by this user, or compared with their hashes."""

import contextlib
import hashlib
import json
import os
import stat
import tempfile
import time
from pathlib import Path
from typing import Final

from lang_core import check_private, make_private, user_cache_directory
from run_iree import evict

RECORDS: Final = "trusted"
"""Name of the folder of the records in the user's cache."""

_LIMIT: Final = 2**20  # bytes of all records; one has about 100
# A file that was changed in the same tick of the file system's clock as before has the same times.
_SETTLED_NS: Final = 50_000_000

_COMPILED: Final[set[str]] = set()  # by this process


def note_compiled(sha256: str, compiler: str) -> None:
    """Records that a compiled module was compiled by this user; in this process alone if the cache cannot be written.

    Args:
        sha256: hash of the module.
        compiler: version of the compiler.

    Raises:
        InputError: another user can write the cache.
    """
    _COMPILED.add(sha256)
    _write(f"{sha256}.compiled", {"compiler": compiler})


def is_compiled_here(sha256: str) -> bool:
    """Returns whether a compiled module was compiled by this user.

    Raises:
        InputError: another user can write the cache.
    """
    return sha256 in _COMPILED or _read(f"{sha256}.compiled")


def note_matching(path: Path, status: os.stat_result, sha256: str) -> None:
    """Records that a file has a hash, until the file changes.

    Args:
        path: path of the file.
        status: status of the file before it was read.
        sha256: hash of the file.

    Raises:
        InputError: another user can write the cache.
    """
    if 0 <= time.time_ns() - status.st_ctime_ns < _SETTLED_NS or status.st_ctime_ns > time.time_ns():
        return
    with contextlib.suppress(OSError):
        if _identity(path.stat()) == _identity(status):
            _write(_matching(status, sha256), {"path": str(path)})


def is_matching(status: os.stat_result, sha256: str) -> bool:
    """Returns whether a file was found to have a hash, and has not changed since.

    Raises:
        InputError: another user can write the cache.
    """
    return _read(_matching(status, sha256))


def _identity(status: os.stat_result) -> tuple[int, ...]:
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def _matching(status: os.stat_result, sha256: str) -> str:
    text = json.dumps([*_identity(status), sha256])
    return f"{hashlib.sha256(text.encode()).hexdigest()}.matching"


def _read(name: str) -> bool:
    folder = user_cache_directory() / RECORDS
    check_private(folder)
    try:
        status = os.lstat(folder / name)
        if not stat.S_ISREG(status.st_mode) or status.st_uid not in (os.geteuid(), 0):
            return False
    except OSError:
        return False
    with contextlib.suppress(OSError):  # a cache that cannot be written
        os.utime(folder / name)
    return True


def _write(name: str, fields: dict[str, str]) -> None:
    folder = user_cache_directory() / RECORDS
    with contextlib.suppress(OSError):  # without a record the file is compiled or compared again
        make_private(folder)
        handle, temporary = tempfile.mkstemp(dir=folder, prefix=f".{name}.")
        try:
            with open(handle, "w", encoding="utf-8") as file:
                file.write(json.dumps(fields))
            os.replace(temporary, folder / name)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
        evict(folder, _LIMIT)
