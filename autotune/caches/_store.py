"""A JSON file that several processes write: locked, merged, replaced as a whole."""

import contextlib
import fcntl
import json
import os
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from autotune.caches._entry import Key
from autotune.kernel import CacheWarning
from lang_core import LARGE_JSON_BOUNDS, InputError, file_json, json_value

SCHEMA: Final = 1

# The entries and failures of a file, by the text of their keys.
Content = dict[str, dict[str, Any]]
Change = Callable[[Content], None]

# Identity of no file.
_NEVER: Final = (-1,)


def empty() -> Content:
    """Returns the content of a missing file."""
    return {"entries": {}, "failures": {}}


class Store:
    """File of entries.

    A writer takes the lock, reads the present entries, changes them, writes and flushes a temporary file, and renames
    it. A reader sees the old file or the new one, and a writer that dies at any moment leaves one of them. The lock is
    the operating system's and is released when its process ends.

    Reading never changes the file. A damaged file of Tapeline's own cache folder counts as empty, with a warning, and
    the next writer moves it aside. A damaged file elsewhere is the user's: it is an error, and stays.

    Args:
        path: path of the file; ``<name>.lock`` beside it is the lock.
        is_own: True if the file lies in Tapeline's cache folder.
    """

    def __init__(self, path: Path, is_own: bool = False) -> None:
        self.path = path
        self._is_own = is_own
        self._seen: tuple[int, ...] | None = _NEVER
        self._content = empty()
        self._unwritten: list[Change] = []
        self._lock = threading.RLock()
        self._silent = False

    def read(self) -> Content:
        """Returns the current content, and leaves the file as it is.

        Raises:
            InputError: the file has another schema, or is neither Tapeline's own nor a file of configurations.
        """
        return self._current(is_writing=False)

    def _current(self, is_writing: bool) -> Content:
        with self._lock:
            identity = self._identity()
            if identity != self._seen:
                content = self._parsed(is_writing) if identity else empty()
                for change in self._unwritten:
                    change(content)
                self._content, self._seen = content, identity
            return self._content

    def change(self, change: Change) -> bool:
        """Changes the content, and returns whether it was written; if not, a warning says so, once.

        A damaged file of Tapeline's own is moved aside first, with a warning.

        Raises:
            InputError: as for ``read``; nothing is written then.
        """
        with self._lock:
            if not self._is_own:
                self.read()  # not even a lock is put beside a file that is none of configurations
            self._unwritten.append(change)
            self._seen = _NEVER  # another process may have written within one tick of the clock
            try:
                self.path.parent.mkdir(parents=True, exist_ok=True)
                with self._locked():
                    self._replace(self._current(is_writing=True))
                self._unwritten.clear()
                return True
            except InputError:
                self._unwritten.remove(change)
                raise
            except OSError as error:
                self._seen = _NEVER
                self._warn(error)
                return False

    def _warn(self, error: OSError) -> None:
        if not self._silent:
            self._silent = True
            warnings.warn(
                f"{self.path}: cannot be written ({error}): configurations are remembered in this process only; set "
                f"TAPELINE_KERNEL_CACHE to a writable folder",
                CacheWarning,
                stacklevel=5,
            )

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        with Path(f"{self.path}.lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _replace(self, content: Content) -> None:
        for left in self.path.parent.glob(
            f".{self.path.name}.*.tmp"
        ):  # files of writers that died; this process holds the lock
            left.unlink(missing_ok=True)
        partial = self.path.with_name(f".{self.path.name}.{os.getpid()}.tmp")
        with partial.open("w") as file:
            json.dump({"schema": SCHEMA, **content}, file, separators=(",", ":"), allow_nan=True)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(self.path)
        self._seen = self._identity()

    def _identity(self) -> tuple[int, ...] | None:
        try:
            status = self.path.stat()
        except OSError:  # missing, or its folder is not a folder
            return None
        return status.st_ino, status.st_size, status.st_mtime_ns

    def _parsed(self, is_writing: bool) -> Content:
        try:
            fields = file_json(self.path, LARGE_JSON_BOUNDS, nonfinite=True)
            schema = fields["schema"]
            if schema == SCHEMA:
                return checked_content(fields)
        except FileNotFoundError:  # it was removed meanwhile
            return empty()
        except OSError as error:
            if is_writing:
                raise  # what cannot be read is not replaced
            return self._without(error.strerror or str(error), is_writing)
        except KeyError as error:
            return self._without(f"it has no {error}", is_writing)
        except (ValueError, TypeError, AttributeError) as error:
            return self._without(str(error), is_writing)
        if not isinstance(schema, int):
            return self._without("its schema is no number", is_writing)
        raise InputError(
            f"{self.path}: has schema {schema}, this Tapeline reads {SCHEMA}: name another file, or remove it"
        )

    def _without(self, why: str, is_writing: bool) -> Content:
        """Returns an empty content instead of a damaged file, which only a writer of Tapeline's own moves aside."""
        if not self._is_own:
            raise InputError(
                f"{self.path}: not a file of kernel configurations ({why}), and left as it is: name another file"
            )
        if not is_writing:
            warnings.warn(f"{self.path}: damaged ({why}); counts as empty", CacheWarning, stacklevel=6)
            return empty()
        aside = self.path.with_name(f"{self.path.name}.corrupt-{time.time_ns()}")
        with contextlib.suppress(FileNotFoundError):  # another process was first
            self.path.rename(aside)
            warnings.warn(f"{self.path}: damaged ({why}); moved to {aside.name}", CacheWarning, stacklevel=6)
        return empty()


def checked_content(fields: dict[str, Any]) -> Content:
    """Returns the entries and failures of a parsed file.

    Raises:
        ValueError, TypeError, KeyError, AttributeError: the fields are not those of a file of configurations.
    """
    content: Content = {part: dict(fields[part].items()) for part in empty()}
    for values in content.values():
        for text, value in values.items():
            Key(*json_value(text))
            if not isinstance(value, dict):
                raise TypeError(f"{text}: expected an object")
    return content
