"""Engines that run bundles: one interface of sessions, opened by IREE, JAX, NumPy, or an engine that was registered.

An engine is loaded when it is first asked for: JAX takes seconds.
"""

from typing import TYPE_CHECKING

from lang_core import export_lazily

if TYPE_CHECKING:
    from tapeline.backends._described_model import model_of
    from tapeline.backends._eager import EagerSession
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

export_lazily(__name__)
