"""Engines that run bundles: one interface of sessions, opened by IREE, by JAX, or by an engine that was registered.

An engine is loaded when it is first asked for: JAX takes seconds.
"""

from tapeline.backends._open import XLA, dumped_module, open_on_rank, open_session, xla_function
from tapeline.backends._registry import (
    DEVICES,
    ENGINES,
    Engine,
    Place,
    all_devices,
    device_aliases,
    engine_named,
    engine_names,
    register_engine,
)

__all__ = [
    "DEVICES",
    "ENGINES",
    "XLA",
    "Engine",
    "Place",
    "all_devices",
    "device_aliases",
    "engine_named",
    "engine_names",
    "dumped_module",
    "open_on_rank",
    "open_session",
    "register_engine",
    "xla_function",
]
