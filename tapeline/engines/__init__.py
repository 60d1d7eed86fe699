"""Engines that run bundles: one interface of sessions, opened by IREE, by JAX, or by an engine that was registered.

An engine is loaded when it is first asked for: JAX takes seconds.
"""

from tapeline.engines._open import XLA, dumped_module, open_on_rank, open_session, xla_function
from tapeline.engines._protocol import Function, Held, Results, Session, Tensor, Updating
from tapeline.engines._registry import (
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
    "Function",
    "Held",
    "Place",
    "Results",
    "Session",
    "Tensor",
    "Updating",
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
