"""Engines that run bundles: one interface of sessions, opened by IREE or by JAX.

An engine is loaded when it is first asked for: JAX takes seconds.
"""

from tapeline.engines._open import DEVICES, ENGINES, XLA, Engine, Place, open_on_rank, open_session, xla_function
from tapeline.engines._protocol import Function, Held, Results, Session, Tensor, Updating

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
    "open_on_rank",
    "open_session",
    "xla_function",
]
