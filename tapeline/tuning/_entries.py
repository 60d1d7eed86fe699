"""Entries of the persistent cache, as a person names them."""

import json
from dataclasses import replace
from typing import Any

from autotune import KERNEL_CLASSES, PINNED, CacheEntry, PersistentCache, from_json, to_json
from lang_core import InputError, near_names


def find_entry(cache: PersistentCache[Any], op: str | None, call: str | None) -> CacheEntry[Any]:
    """The only entry of an op and a call.

    Args:
        cache: where to look.
        op: with its version or without.
        call: the beginning of its key.

    Raises:
        InputError: there is none, or several.
    """
    entries = cache.entries()
    ops = sorted({entry.key.op for entry in entries})
    if op is not None and not any(_is_of(entry, op) for entry in entries):
        known = ", ".join(ops) or "nothing"
        raise InputError(f"--op={op}: {cache.path} has nothing of it; it has {known}{_near(op, ops)}")
    result = [e for e in entries if (op is None or _is_of(e, op)) and e.key.call.startswith(call or "")]
    if not result:
        raise InputError(f"--call={call}: {cache.path} has no such call; `list` shows those that it has")
    if len(result) > 1:
        calls = ", ".join(f"{entry.key.op} {entry.key.call} ({entry.key.device})" for entry in result[:8])
        raise InputError(f"{len(result)} entries fit: say more with --op and --call: {calls}")
    return result[0]


def _is_of(entry: CacheEntry[Any], op: str) -> bool:
    return op in (entry.key.op, entry.key.op.rpartition("@v")[0])


def _near(op: str, ops: list[str]) -> str:
    return near_names(op, [*ops, *(op.rpartition("@v")[0] for op in ops)])


def pin_entry(cache: PersistentCache[Any], entry: CacheEntry[Any], cfg: str | None) -> CacheEntry[Any]:
    """Makes a configuration the one that no tuning replaces.

    Args:
        cache: where the entry is.
        entry: of the call.
        cfg: the fields as JSON, such as ``{"chunk": 16}``; the entry's own configuration if None.

    Raises:
        InputError: this is no configuration of the kernel.
    """
    kernel = KERNEL_CLASSES.get(entry.kernel)
    if kernel is None:
        noted = entry.kernel or "that nobody noted"
        raise InputError(
            f"{entry.key.op} is of the kernel {noted}, which is not loaded: name its module with --kernels"
        )
    chosen = entry.cfg if cfg is None else _configuration(cfg, kernel.cfg_type, entry)
    pinned = replace(entry, cfg=chosen, provenance=PINNED)
    if not cache.store(pinned):
        raise InputError(f"{cache.path}: cannot be written; the warning above says why")
    return pinned


def _configuration(text: str, kind: type | None, entry: CacheEntry[Any]) -> Any:
    try:
        value = json.loads(text)
    except ValueError as error:
        raise InputError(f"--cfg={text}: no JSON ({error}): write it as {_fields_text(entry.cfg)}") from None
    if kind is None or not isinstance(value, dict):
        return from_json(value)
    try:
        return kind(**value)
    except TypeError as error:
        raise InputError(f"--cfg={text}: no {kind.__name__} ({error}): such as {_fields_text(entry.cfg)}") from None


def _fields_text(cfg: Any) -> str:
    encoded = to_json(cfg)
    return json.dumps(encoded.get("fields", encoded) if isinstance(encoded, dict) else encoded)


def clear_entries(cache: PersistentCache[Any], op: str | None, call: str | None) -> int:
    """Forgets everything, an op, or a call; how many entries.

    Raises:
        InputError: a call is named that is not there.
    """
    if call is None:
        return cache.clear(op)
    entry = find_entry(cache, op, call)
    return cache.clear(entry.key.op, entry.key.call)
