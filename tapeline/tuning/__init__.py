"""Configurations of kernels for a person: listed, explained, pinned, removed, and tuned from records of calls."""

from typing import TYPE_CHECKING

from lang_core import export_lazily

if TYPE_CHECKING:
    from autotune import CacheEntry, PersistentCache
    from tapeline.tuning._bundle_calls import bundle_calls, bundle_text
    from tapeline.tuning._cpu_kernels import tune_cpu, tuned_target
    from tapeline.tuning._entries import clear_entries, find_entry, list_entries, open_cache, pin_entry
    from tapeline.tuning._explain import as_json, cfg_text, entries_text, explanation
    from tapeline.tuning._tune import TunedCall, load_kernels, tune_recorded, tuned_text

export_lazily(__name__)
