"""Configurations on disk."""

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

from autotune.caches._codec import decode, encode
from autotune.caches._entry import PINNED, TUNED, CacheEntry, Key, Measurement
from autotune.caches._memory import is_of
from autotune.caches._store import SCHEMA, Content, Store, checked_content
from autotune.kernel import KernelError
from lang_core import InputError, check_private, json_value, user_cache_directory

Cfg = TypeVar("Cfg")


def cache_directory() -> Path:
    """Returns ``$TAPELINE_KERNEL_CACHE``, else ``tapeline/kernels`` in the user's cache folder (by XDG)."""
    named = os.environ.get("TAPELINE_KERNEL_CACHE")
    return Path(named) if named else user_cache_directory() / "kernels"


def _own_directory() -> Path:
    return cache_directory() / f"v{SCHEMA}"


class PersistentCache(Generic[Cfg]):
    """Cache of entries in a file that processes and threads share.

    Args:
        opname: file name without ``.json``.
        path: path of the file; in ``cache_directory()``, under the schema's version, if None.
        loader: function from JSON values to a configuration, for types that ``encode`` does not support.
        dumper: function from a configuration to JSON values.
        cfg_type: class of configurations, for kernels that do not name theirs.

    Raises:
        InputError: another user can write ``cache_directory()``. Reading raises it, too, if a file elsewhere is none of
            configurations.
    """

    def __init__(
        self,
        opname: str = "kernels",
        path: str | os.PathLike[str] | None = None,
        loader: Callable[[Any], Cfg] | None = None,
        dumper: Callable[[Cfg], Any] | None = None,
        cfg_type: type[Cfg] | None = None,
    ) -> None:
        if path is None:
            check_private(cache_directory())
        self.path: Final = _own_directory() / f"{opname}.json" if path is None else Path(path)
        self._store = Store(self.path, is_own=self.path.parent.resolve() == _own_directory().resolve())
        self._load, self._dump, self._cfg_type = loader, dumper or encode, cfg_type

    def find(self, key: Key, cfg_type: type | None = None) -> CacheEntry[Cfg] | None:
        """Returns the entry of a call: one of this source of the kernel, else one put by hand for any source.

        Raises:
            KernelError: the entry cannot be decoded.
        """
        entries = self._store.read()["entries"]
        for stored in (key, Key(key.device, key.op, key.call)):
            raw = entries.get(_text(stored))
            if raw is not None:
                return self._entry(stored, raw, cfg_type)
        return None

    def near(self, key: Key) -> str:
        """Returns in words which entries of the op exist, for a call without an entry."""
        others = [Key(*json_value(text)) for text in self._store.read()["entries"]]
        same_op = [other for other in others if other.op == key.op]
        if not same_op:
            return "has nothing of the op"
        if any(other[:3] == key[:3] for other in same_op):
            return "has the call of another source of the kernel"
        if any(other.call == key.call for other in same_op):
            return "has the call of another device, or other versions or flags"
        return f"has {len(same_op)} other calls of the op"

    def store(self, entry: CacheEntry[Cfg]) -> bool:
        """Stores an entry, and returns whether it was written. A pinned one is replaced only by another pinned one."""
        raw, text = self._raw(entry), _text(entry.key)

        def change(content: Content) -> None:
            before = content["entries"].get(text)
            if before is None or before.get("provenance") != PINNED or entry.provenance == PINNED:
                content["entries"][text] = raw

        return self._store.change(change)

    def get(self, device: str, op_id: str, call_key: str) -> Cfg | None:
        """Returns the last configuration stored under a key, of any source of the kernel.

        Raises:
            KernelError: the entry cannot be read.
        """
        wanted = (device, op_id, call_key)
        entries = [(Key(*json_value(text)), raw) for text, raw in self._store.read()["entries"].items()]
        matching = [(key, raw) for key, raw in entries if key[:3] == wanted]
        if not matching:
            return None
        key, raw = max(matching, key=lambda entry: entry[1].get("created", 0.0))
        return self._entry(key, raw, None).cfg

    def put(self, device: str, op_id: str, call_key: str, cfg: Cfg, provenance: str = TUNED) -> bool:
        """Stores a configuration by hand, for any source of the kernel; returns whether it was written."""
        return self.store(CacheEntry(Key(device, op_id, call_key), cfg, provenance))

    def failures(self, key: Key) -> dict[str, str]:
        """Returns the reasons of candidates that failed for a call, by ``cfg_name``."""
        return dict(self._store.read()["failures"].get(_text(key), {}))

    def note_failures(self, key: Key, failed: Mapping[str, str]) -> bool:
        """Stores the reasons of candidates that failed; returns whether they were written."""
        return self._store.change(lambda content: content["failures"].setdefault(_text(key), {}).update(failed))

    def entries(self) -> list[CacheEntry[Any]]:
        """Returns all entries; a configuration of an unloaded class is a mapping.

        Raises:
            KernelError: an entry cannot be read.
        """
        return [self._entry(Key(*json_value(t)), raw, dict) for t, raw in self._store.read()["entries"].items()]

    def keys(self) -> list[tuple[str, str, str]]:
        """Returns ``(device, op, call)`` of all entries."""
        return [Key(*json_value(text))[:3] for text in self._store.read()["entries"]]

    def size(self) -> int:
        """Returns the number of entries."""
        return len(self._store.read()["entries"])

    def clear(self, op_id: str | None = None, call_key: str | None = None) -> int:
        """Removes all entries and failures, or those of an op or of one call; returns the number of entries."""
        gone: list[str] = []

        def matches(text: str) -> bool:
            key = Key(*json_value(text))
            return (op_id is None or is_of(key, op_id)) and call_key in (None, key.call)

        def change(content: Content) -> None:
            gone[:] = [text for text in content["entries"] if matches(text)]
            for part in content.values():
                for text in [text for text in part if matches(text)]:
                    del part[text]

        self._store.change(change)
        return len(gone)

    def export(self, path: str | os.PathLike[str]) -> int:
        """Adds all entries to another file, to be carried to another machine; returns their number."""
        content = self._store.read()

        def add(other: Content) -> None:
            for part, values in content.items():
                other[part].update(values)

        Store(Path(path)).change(add)
        return len(content["entries"])

    def import_from(self, path: str | os.PathLike[str]) -> int:
        """Adds the missing entries of an exported file; returns the number of added entries.

        Entries keep their keys: those of another machine apply only if the device part of the key is the same.

        Raises:
            InputError: the file is missing, or is not an exported file.
        """
        if not Path(path).is_file():
            raise InputError(f"{path}: no such file: write one with PersistentCache.export")
        text = Path(path).read_text(errors="replace")
        theirs = _checked(path, text)
        taken: list[str] = []

        def change(content: Content) -> None:
            taken[:] = [key for key in theirs["entries"] if key not in content["entries"]]
            content["entries"].update({key: theirs["entries"][key] for key in taken})
            for key, failed in theirs["failures"].items():
                content["failures"].setdefault(key, {}).update(failed)

        self._store.change(change)
        return len(taken)

    def _raw(self, entry: CacheEntry[Any]) -> dict[str, Any]:
        measurements = [[encode(m.cfg), m.seconds, m.status, m.detail] for m in entry.measurements]
        return {
            "cfg": self._dump(entry.cfg),
            "provenance": entry.provenance,
            "measurements": measurements,
            "environment": entry.environment,
            "specs": entry.specs,
            "kernel": entry.kernel,
            "created": entry.created,
        }

    def _entry(self, key: Key, raw: Mapping[str, Any], cfg_type: type | None) -> CacheEntry[Any]:
        kind = cfg_type or self._cfg_type
        try:
            cfg = self._load(raw["cfg"]) if self._load else _decoded(raw["cfg"], kind)
            measurements = tuple(Measurement(_decoded(m[0], kind), *m[1:]) for m in raw["measurements"])
            rest = {name: raw[name] for name in ("provenance", "environment", "specs", "kernel", "created")}
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise KernelError(f"{self.path}: the entry of {key.op} (call {key.call}) cannot be read: {error}") from None
        return CacheEntry(key, cfg, measurements=measurements, **rest)


def _decoded(value: Any, kind: type | None) -> Any:
    if kind is not dict:
        return decode(value, kind)
    try:
        return decode(value)
    except KernelError:  # the class is not loaded; the fields suffice for a listing
        return value.get("fields", value) if isinstance(value, dict) else value


def _text(key: Key) -> str:
    return json.dumps(list(key))


def _checked(path: str | os.PathLike[str], text: str) -> Content:
    try:
        fields = json_value(text)
        if fields["schema"] == SCHEMA:
            return checked_content(fields)
        problem = f"schema {fields['schema']}, wanted {SCHEMA}"
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        problem = str(error)
    raise InputError(
        f"{path}: not an exported file of kernel configurations ({problem}): write one with PersistentCache.export"
    )
