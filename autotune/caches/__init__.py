"""Configurations that are remembered: entries and their keys, in memory, and in a file that processes share."""

from typing import TYPE_CHECKING

from lang_core import export_lazily

if TYPE_CHECKING:
    from autotune.caches._codec import decode, encode
    from autotune.caches._entry import (
        FAILED,
        HEURISTIC,
        OK,
        OVERRIDE,
        PINNED,
        REJECTED,
        SKIPPED,
        TUNED,
        AutotuneData,
        CacheEntry,
        Key,
        Measurement,
        Selection,
        cfg_name,
    )
    from autotune.caches._memory import OVERLAYS, ConfigCache, overlay_cache
    from autotune.caches._persistent import PersistentCache, cache_directory

export_lazily(__name__)
