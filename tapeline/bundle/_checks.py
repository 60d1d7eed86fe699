"""Comparison of a bundle's files with the hashes in its description, and the watch over its weights while they run."""

import contextlib
import fcntl
import hashlib
import os
import signal
import threading
import weakref
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Final, Literal

from lang_core import DescriptionError, DeviceError, InputError, TapelineError, checked_choices, open_regular
from tapeline.bundle._files import ARCHIVE, MARK
from tapeline.bundle._trust import is_matching, note_matching

Verify = Literal["background", "full", "sizes", "off"]
"""When the files of a bundle are compared with their hashes."""

VERIFY: Final[tuple[Verify, ...]] = ("background", "full", "sizes", "off")
"""Names of the ways; the first one is the default."""

_AT_ONCE: Final = 16 * 2**20  # bytes of weights up to which nobody notices the time
_CHUNK: Final = 4 * 2**20
_LOOK_S: Final = 0.05
_NICE: Final = 19


class BundleChecks:
    """Comparison of the files of a bundle that is loaded; sessions of the bundle share it.

    Args:
        directory: directory of the bundle.
        hashes: SHA-256 by name of file.
    """

    def __init__(self, directory: Path, hashes: Mapping[str, str]) -> None:
        self._directory: Final = directory
        self._hashes: Final = hashes
        self._lock: Final = threading.RLock()
        self._checked: Final[set[str]] = set()
        self._weights: _WeightsWatch | None = None

    def check_module(self, path: Path) -> None:
        """Compares a file that decides which code runs.

        Raises:
            DescriptionError: it is another file.
        """
        self._check(path.name)

    @checked_choices
    def check(self, verify: Verify) -> None:
        """Compares all files: weights as ``verify`` says, all others now.

        Modules for other devices, and graphs, may have been removed.

        Raises:
            DescriptionError: a file is missing, or is not the one that was exported.
        """
        if verify == "off":
            return
        for name in self._hashes:
            left_out = name.startswith(("module.", "graph.")) and not (self._directory / name).exists()
            if name != ARCHIVE and not left_out:
                self._check(name)
        if verify != "sizes" and ARCHIVE in self._hashes:
            self._watch().compare(wait=verify == "full")

    def note_exported(self) -> None:
        """Records that the archive has the hash with which this process has written it."""
        wanted, path = self._hashes.get(ARCHIVE), self._directory / ARCHIVE
        with contextlib.suppress(FileNotFoundError):
            if wanted is not None:
                note_matching(path, path.stat(), wanted)

    def damaged(self) -> str | None:
        """Returns the name of a file that is missing or is not the one that was exported; None if all are.

        Weights that have not changed since they were written or compared are not read.
        """
        for name in self._hashes:
            try:
                if name == ARCHIVE:
                    self._watch().compare(wait=True)
                else:
                    self._check(name)
            except (DescriptionError, InputError):
                return name
        return None

    def guard(self) -> "WeightsGuard | None":
        """Returns a guard for a session that maps the weights; None without an archive."""
        path = self._directory / ARCHIVE
        if not path.is_file():
            return None
        return WeightsGuard(self._watch())

    def wait(self, on_wait: Callable[[], object] = lambda: None) -> None:
        """Waits for the comparison of the weights, if one runs.

        Args:
            on_wait: called if the comparison has not ended yet.

        Raises:
            DescriptionError: they are not those that were exported.
        """
        if self._weights is not None:
            self._weights.wait(on_wait)

    def _watch(self) -> "_WeightsWatch":
        with self._lock:
            if self._weights is None:
                self._weights = _WeightsWatch(self._directory / ARCHIVE, self._hashes.get(ARCHIVE))
            return self._weights

    def _check(self, name: str) -> None:
        wanted, path = self._hashes.get(name), self._directory / name
        with self._lock:
            if wanted is None or name in self._checked:
                return
            try:
                with open(open_regular(path), "rb") as file:
                    status = os.fstat(file.fileno())
                    large = status.st_size > _AT_ONCE and name.startswith("module.")
                    if not (large and is_matching(status, wanted)):
                        if hashlib.file_digest(file, "sha256").hexdigest() != wanted:
                            raise _differs(path)
                        if large:
                            note_matching(path, status, wanted)
            except OSError as error:
                raise _unreadable(path, error) from None
            self._checked.add(name)


class WeightsGuard:
    """Guard of one session; see ``CallGuard``."""

    def __init__(self, watch: "_WeightsWatch") -> None:
        self._watch: Final = watch
        self._locks: Final[list[AbstractContextManager[Any]]] = []
        watch.add(self._locks)

    def bind(self, lock: AbstractContextManager[Any]) -> None:
        """Takes the lock that the session holds during a call."""
        self._locks.append(lock)

    def holds_writers(self) -> bool:
        """Returns True if Linux has given a lease on the archive."""
        return self._watch.is_leased

    def check(self) -> None:
        """Raises an error if the weights are not, or are no longer, those that were loaded."""
        self._watch.check()

    def check_mapped(self) -> None:
        """Raises an error if the archive that was just mapped may not be the file that was compared."""
        self._watch.check_mapped()

    def close(self) -> None:
        """Ends the watch for this session."""
        self._watch.remove(self._locks)
        self._locks.clear()


class _WeightsWatch:
    """Archive of weights that is mapped: its hash is compared in the background, and changes in place are noticed.

    If Linux allows it, a lease makes other processes that open the archive for writing, or truncate it, wait for
    running calls: a call that reads a page beyond the end of a file ends the process with SIGBUS. Without a lease, size
    and time of change are compared before each call, and sessions on the CPU read the archive if memory allows it.

    Raises:
        DescriptionError: the archive cannot be read.
    """

    def __init__(self, path: Path, wanted: str | None) -> None:
        self._path: Final = path
        self._wanted: Final = wanted
        self._lock: Final = threading.Lock()
        self._users: Final[list[list[AbstractContextManager[Any]]]] = []
        try:
            self._file: Final = open_regular(path)
        except OSError as error:
            raise _unreadable(path, error) from None
        weakref.finalize(self, os.close, self._file).atexit = False  # a bundle is not closed: its watch ends with it
        self._loaded = os.fstat(self._file)
        self._error: TapelineError | None = None
        self._is_compared = False
        self._compared: Final = threading.Event()
        self._compared.set()
        self._ended: threading.Event | None = None

    @property
    def is_leased(self) -> bool:
        """True if a process that writes the archive waits for running calls."""
        return self._ended is not None

    def compare(self, *, wait: bool) -> None:
        """Compares the hash, in the background unless the archive is small, was compared before, or ``wait`` is True.

        Raises:
            DescriptionError: it is another file.
        """
        if self._wanted is None:
            return
        with self._lock:
            begins, self._is_compared = not self._is_compared, True
        if begins and not is_matching(self._loaded, self._wanted):
            self._begin(behind=not wait and self._loaded.st_size > _AT_ONCE)
        if wait or self._loaded.st_size <= _AT_ONCE:
            self.wait(lambda: None)

    def wait(self, on_wait: Callable[[], object]) -> None:
        """Waits for the comparison and raises the error that was found."""
        if not self._compared.is_set():
            on_wait()
            self._compared.wait()
        self._raise()

    def check(self) -> None:
        """Raises the error that was found; looks at the file's size and time of change."""
        self._raise()
        now, before = os.fstat(self._file), self._loaded
        if now.st_size != before.st_size:
            self._error = _changed(self._path, f"its size was {before.st_size} bytes and is {now.st_size}")
            self._raise()
        if now.st_mtime_ns != before.st_mtime_ns:
            self._loaded = now
            if self._wanted is not None and self._compared.is_set():
                self._begin(behind=True)

    def check_mapped(self) -> None:
        """Raises an error if the path has another file now."""
        if not self._path.exists() or not os.path.samestat(self._path.stat(), self._loaded):
            raise _changed(self._path, "it was replaced while it was loaded")
        self.check()

    def add(self, user: list[AbstractContextManager[Any]]) -> None:
        """Begins to watch for a user: a list of the locks that it holds during a call."""
        with self._lock:
            self._users.append(user)
            if self._ended is None and _lease(self._file):
                self._ended = threading.Event()
                threading.Thread(target=self._look, args=(self._ended,), name="weights", daemon=True).start()

    def remove(self, user: list[AbstractContextManager[Any]]) -> None:
        """Ends the watch for a user."""
        with self._lock:
            self._users[:] = [other for other in self._users if other is not user]
            if not self._users and self._ended is not None:
                self._ended.set()
                self._ended = None
                _release(self._file)

    def _look(self, ended: threading.Event) -> None:
        """Waits until another process wants to write the archive, or until the watch ends."""
        while not ended.wait(_LOOK_S):
            if fcntl.fcntl(self._file, fcntl.F_GETLEASE) == fcntl.F_RDLCK:
                continue
            with self._lock:
                if ended.is_set():
                    return
                self._error = self._error or _changed(self._path, "another process opened it for writing")
                locks = [lock for user in self._users for lock in user]
            for lock in locks:
                with lock:
                    pass  # the call that ran has ended, and the next one raises the error
            _release(self._file)
            return

    def _begin(self, *, behind: bool) -> None:
        self._compared.clear()
        if behind:
            threading.Thread(target=self._compare, args=(True,), name="sha256 of weights", daemon=True).start()
        else:
            self._compare()

    def _compare(self, polite: bool = False) -> None:
        try:
            if polite:
                with contextlib.suppress(OSError):
                    os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICE)
            file, memory, digest, at = self._file, memoryview(bytearray(_CHUNK)), hashlib.sha256(), 0
            before = os.fstat(file)
            while count := os.preadv(file, [memory], at):
                digest.update(memory[:count])
                at += count
            if digest.hexdigest() != self._wanted:
                self._error = self._error or _differs(self._path)
            else:
                note_matching(self._path, before, digest.hexdigest())
        except OSError as error:
            self._error = self._error or _unreadable(self._path, error)
        except TapelineError as error:
            self._error = self._error or error
        finally:
            self._compared.set()

    def _raise(self) -> None:
        if self._error is not None:
            raise type(self._error)(str(self._error))


def _lease(file: int) -> bool:
    """Asks Linux to let writers of a file wait; returns whether it does."""
    try:
        fcntl.fcntl(file, fcntl.F_SETSIG, signal.SIGURG)  # which is ignored; by default the process would end
        fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_RDLCK)
        fcntl.fcntl(file, fcntl.F_SETOWN, 0)
    except (AttributeError, OSError):  # another system, another owner, a file system without
        return False
    return True


def _release(file: int) -> None:
    with contextlib.suppress(OSError):
        fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_UNLCK)


def _unreadable(path: Path, error: OSError) -> InputError:
    if isinstance(error, FileNotFoundError):
        return InputError(f"{path.parent} has lost {path.name}, which {MARK} lists: export the bundle again")
    return InputError(f"{path}: {MARK} lists it, and it cannot be read ({error.strerror}): export the bundle again")


def _differs(path: Path) -> DescriptionError:
    return DescriptionError(f"{path} is not the file that {MARK} describes (sha256 differs): export the bundle again")


def _changed(path: Path, how: str) -> DeviceError:
    return DeviceError(
        f"{path} was changed while it was in use ({how}): load the bundle again, and replace files of a bundle by an "
        f"export or a rename"
    )
