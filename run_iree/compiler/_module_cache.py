"""Compiled modules that are kept for the next export of the same text, target and flags."""

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any, Final

from lang_core import check_private, json_value, make_private
from run_iree.compiler._eviction import evict, remove

_CHUNK: Final = 2**20
_HEADER_LIMIT: Final = 2**20

# A module above this part of the bound would push out too many others: one with its weights inline.
_LARGEST_PART: Final = 4


class ModuleCache:
    """Folder of compiled modules, which processes share.

    An entry is one file: a line of JSON (SHA-256 of the module, facts), then the module. It is written beside its name
    and renamed, and never changed. A damaged entry is removed when it is read. If the file system refuses, modules are
    compiled but not cached.

    Args:
        directory: folder of the entries; created when the first is stored.
        limit: bytes of all entries together; the least recently used are removed first.
        warn: receives a line if the file system refuses; nothing by default.
    """

    def __init__(self, directory: Path, limit: int, warn: Callable[[str], object] = lambda text: None) -> None:
        self.directory: Final = directory
        self.limit: Final = limit
        self._say: Final = warn

    def fetch(self, key: str, output: Path) -> dict[str, Any] | None:
        """Copies a module into a file, and returns its facts; None if the module is not found or is damaged.

        Args:
            key: hexadecimal digest of everything that the module depends on.
            output: file to write; its contents are undefined if None is returned.

        Raises:
            InputError: another user can write the cache, which holds native code.
            OSError: ``output`` cannot be written.
        """
        path = self._path(key)
        check_private(self.directory)
        try:
            entry = path.open("rb")
        except FileNotFoundError:
            return None
        except OSError as error:
            self._warn(f"cannot read {path}", error)
            return None
        with entry:
            header = _header(entry)
            if header is not None and _copied(entry, output) == header["sha256"]:
                with contextlib.suppress(OSError):  # a folder of somebody else: its owner evicts
                    os.utime(path)
                return header["facts"]
        with contextlib.suppress(OSError):
            remove(path)
        return None

    def store(self, key: str, module: Path, facts: dict[str, Any]) -> None:
        """Keeps a copy of a module, and removes the least recently used beyond the bound.

        Args:
            key: as for ``fetch``.
            module: compiled module.
            facts: JSON values that ``fetch`` returns.

        Raises:
            InputError: another user can write the cache.
        """
        size = module.stat().st_size
        if size > self.limit // _LARGEST_PART:
            return
        path = self._path(key)
        try:
            make_private(self.directory)
            with _beside(path) as entry, module.open("rb") as source:
                digest = hashlib.file_digest(source, "sha256").hexdigest()
                entry.write(json.dumps({"sha256": digest, "facts": facts}).encode() + b"\n")
                source.seek(0)
                while chunk := source.read(_CHUNK):
                    entry.write(chunk)
            evict(self.directory, self.limit)
        except OSError as error:
            self._warn(f"cannot keep a compiled module in {self.directory}", error)

    def _path(self, key: str) -> Path:
        return self.directory / f"{key}.module"

    def _warn(self, text: str, error: OSError) -> None:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        advice = "make room" if full else "set TAPELINE_MODULE_CACHE=0 to turn the cache off"
        self._say(f"{text} ({error.strerror or error}): {advice}")


def _header(entry: IO[bytes]) -> dict[str, Any] | None:
    """Reads an entry's first line; None if it is damaged."""
    try:
        header = json_value(entry.readline(_HEADER_LIMIT), nonfinite=True)
    except ValueError:
        return None
    complete = isinstance(header, dict) and isinstance(header.get("facts"), dict) and "sha256" in header
    return header if complete else None


def _copied(entry: IO[bytes], output: Path) -> str:
    """Copies the rest of an entry, and returns its SHA-256."""
    digest = hashlib.sha256()
    with output.open("wb") as file:
        while chunk := entry.read(_CHUNK):
            digest.update(chunk)
            file.write(chunk)
    return digest.hexdigest()


@contextlib.contextmanager
def _beside(path: Path) -> Iterator[IO[bytes]]:
    """Yields a temporary file that takes a path when the block ends without an error."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with open(handle, "wb") as file:
            fcntl.flock(file, fcntl.LOCK_EX)  # it is not left behind
            yield file
            file.flush()
            Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
