"""Configurations in memory, and overlays that take precedence for a while."""

import threading
from collections.abc import Mapping
from contextvars import ContextVar
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from autotune.caches._entry import PINNED, TUNED, CacheEntry, Key
from autotune.kernel import KernelError

Cfg = TypeVar("Cfg")

OVERLAYS: ContextVar[tuple[Mapping[tuple[str, str, str], Any], ...]] = ContextVar("tapeline_overlays", default=())
"""Configurations that apply within a block of code, by kernel, device and key."""


class ConfigCache(Generic[Cfg]):
    """Cache of entries in memory. Threads may share one."""

    def __init__(self) -> None:
        self._entries: dict[Key, CacheEntry[Cfg]] = {}
        self._failures: dict[Key, dict[str, str]] = {}
        self._lock = threading.Lock()

    def find(self, key: Key) -> CacheEntry[Cfg] | None:
        """Returns the entry of a call: one of this source of the kernel, else one put by hand for any source."""
        return self._entries.get(key) or self._entries.get(Key(key.device, key.op, key.call))

    def store(self, entry: CacheEntry[Cfg]) -> None:
        """Stores an entry. A pinned one is replaced only by another pinned one."""
        with self._lock:
            before = self._entries.get(entry.key)
            if before is None or before.provenance != PINNED or entry.provenance == PINNED:
                self._entries[entry.key] = entry

    def get(self, dev: str, op_id: str, call_key: str) -> Cfg | None:
        """Returns the last configuration stored under a key, of any source of the kernel."""
        entry = self._entries.get(Key(dev, op_id, call_key))
        if entry is None:
            wanted = (dev, op_id, call_key)
            entry = next((e for key, e in reversed(list(self._entries.items())) if key[:3] == wanted), None)
        return None if entry is None else entry.cfg

    def put(self, dev: str, op_id: str, call_key: str, cfg: Cfg, provenance: str = TUNED) -> None:
        """Stores a configuration by hand, for any source of the kernel.

        Raises:
            KernelError: the configuration is None.
        """
        if cfg is None:
            raise KernelError(f"cannot store None for {op_id!r}: None means that there is no configuration")
        with self._lock:
            key = Key(dev, op_id, call_key)
            for old in [entry for entry in self._entries if entry[:3] == key[:3]]:
                del self._entries[old]
            self._entries[key] = CacheEntry(key, cfg, provenance)

    def failures(self, key: Key) -> dict[str, str]:
        """Returns the reasons of candidates that failed for a call, by ``cfg_name``."""
        return dict(self._failures.get(key, {}))

    def note_failures(self, key: Key, failed: Mapping[str, str]) -> None:
        """Stores the reasons of candidates that failed."""
        if failed:
            with self._lock:
                self._failures.setdefault(key, {}).update(failed)

    def clear(self, op_id: str | None = None) -> int:
        """Removes all entries, or those of one op (``op_id`` or ``op_id@vVERSION``); returns their number."""
        with self._lock:
            gone = [key for key in self._entries if op_id is None or is_of(key, op_id)]
            for key in gone:
                del self._entries[key]
            for key in [key for key in self._failures if op_id is None or is_of(key, op_id)]:
                del self._failures[key]
        return len(gone)

    def size(self) -> int:
        """Returns the number of entries."""
        return len(self._entries)

    def keys(self) -> list[tuple[str, str, str]]:
        """Returns ``(device, op, call)`` of all entries."""
        return [key[:3] for key in self._entries]

    def entries(self) -> list[CacheEntry[Cfg]]:
        """Returns all entries."""
        return list(self._entries.values())


def is_of(key: Key, op_id: str) -> bool:
    """Returns whether a key belongs to an op, given with or without its version."""
    return op_id in (key.op, key.op.rpartition("@v")[0])


class overlay_cache:  # noqa: N801 - it reads as a statement
    """Overlay of configurations, which take precedence over all caches within a ``with`` block; the innermost wins.

    It applies to the thread (and the asynchronous task) that entered it; several may enter one overlay.

    Args:
        mapping: configurations by ``(device, op, call)``.
    """

    def __init__(self, mapping: Mapping[tuple[str, str, str], Any]) -> None:
        self.mapping = mapping

    def __enter__(self) -> Self:
        OVERLAYS.set((*OVERLAYS.get(), self.mapping))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        overlays = OVERLAYS.get()
        places = [place for place, mapping in enumerate(overlays) if mapping is self.mapping]
        if places:
            OVERLAYS.set((*overlays[: places[-1]], *overlays[places[-1] + 1 :]))
