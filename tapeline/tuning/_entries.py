"""Entries of a persistent cache, found by op and the first digits of a call key."""

import json
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from autotune import KERNEL_CLASSES, PINNED, CacheEntry, PersistentCache, from_json, to_json
from lang_core import InputError, json_value, near_names, some_of


def open_cache(path: str | os.PathLike[str] | None = None) -> PersistentCache[Any]:
    """Returns a persistent cache of configurations.

    Args:
        path: file of the cache; the user's own if None.
    """
    return PersistentCache(path=None if path is None else Path(path))


def list_entries(cache: PersistentCache[Any], op: str | None = None) -> Sequence[CacheEntry[Any]]:
    """Returns the entries of an op, with or without its version; all entries if None."""
    return [entry for entry in cache.entries() if op is None or _is_of(entry, op)]


def find_entry(cache: PersistentCache[Any], op: str | None, call: str | None) -> CacheEntry[Any]:
    """Returns the only entry of an op and a call.

    Args:
        cache: cache to search.
        op: op, with or without its version; any if None.
        call: first digits of the call key; any if None.

    Raises:
        InputError: zero or several entries match.
    """
    entries = cache.entries()
    ops = sorted({entry.key.op for entry in entries})
    if op is not None and not any(_is_of(entry, op) for entry in entries):
        known = some_of(op, ops) or "nothing"
        raise InputError(f"op={op}: not in {cache.path}; available: {known}{_near(op, ops)}")
    matching = [e for e in entries if (op is None or _is_of(e, op)) and e.key.call.startswith(call or "")]
    if not matching:
        raise InputError(f"call={call}: not in {cache.path}; a list of all entries shows the calls")
    if len(matching) > 1:
        calls = ", ".join(f"{entry.key.op} {entry.key.call} ({entry.key.device})" for entry in matching[:8])
        raise InputError(f"{len(matching)} entries match: give more of op and call: {calls}")
    return matching[0]


def _is_of(entry: CacheEntry[Any], op: str) -> bool:
    return op in (entry.key.op, entry.key.op.rpartition("@v")[0])


def _near(op: str, ops: list[str]) -> str:
    return near_names(op, [*ops, *(known.rpartition("@v")[0] for known in ops)])


def pin_entry(cache: PersistentCache[Any], entry: CacheEntry[Any], cfg: str | None) -> CacheEntry[Any]:
    """Pins a configuration, so that tuning does not replace it; returns the pinned entry.

    Args:
        cache: cache with the entry.
        entry: entry of the call.
        cfg: fields of the configuration as JSON, such as ``{"chunk": 16}``; the entry's own configuration if None.

    Raises:
        InputError: the kernel is not loaded, or the text is not a configuration of it.
    """
    kernel = KERNEL_CLASSES.get(entry.kernel)
    if kernel is None:
        noted = entry.kernel or "of an unknown class"
        raise InputError(
            f"{entry.key.op} is of the kernel {noted}, which is not loaded: name its module among the kernels to load"
        )
    chosen = entry.cfg if cfg is None else _configuration(cfg, kernel.cfg_type, entry)
    pinned = replace(entry, cfg=chosen, provenance=PINNED)
    if not cache.store(pinned):
        raise InputError(f"{cache.path}: cannot be written; the warning above says why")
    return pinned


def _configuration(text: str, kind: type | None, entry: CacheEntry[Any]) -> Any:
    try:
        value = json_value(text, nonfinite=True)
    except ValueError as error:
        raise InputError(f"cfg={text}: not JSON ({error}): write it as {_fields_text(entry.cfg)}") from None
    if kind is None or not isinstance(value, dict):
        return from_json(value)
    try:
        return kind(**value)
    except TypeError as error:
        raise InputError(
            f"cfg={text}: not a {kind.__name__} ({error}): write it as {_fields_text(entry.cfg)}"
        ) from None


def _fields_text(cfg: Any) -> str:
    encoded = to_json(cfg)
    return json.dumps(encoded.get("fields", encoded) if isinstance(encoded, dict) else encoded)


def clear_entries(cache: PersistentCache[Any], op: str | None, call: str | None) -> int:
    """Removes all entries, those of an op, or that of a call; returns the number of removed entries.

    Raises:
        InputError: the call is not in the cache.
    """
    if call is None:
        return cache.clear(op)
    entry = find_entry(cache, op, call)
    return cache.clear(entry.key.op, entry.key.call)
