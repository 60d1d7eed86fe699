"""Fuzz targets: one file each, with a ``TARGET``.

This file imports none of them: a child imports its own, with instrumented modules.
"""

from collections.abc import Mapping, Sequence
from typing import Final

PACKAGES: Final[Mapping[str, Sequence[str]]] = {
    "_planted": ("tests.fuzz.targets._planted",),
    "routes": ("tapeline.grammar", "tapeline.server", "tapeline.text", "tapeline.toolcalls"),
    "safetensors": ("transformer_core.checkpoints",),
}
"""Packages and modules per target whose coverage guides it. Instrumenting all of them takes 20 seconds."""

NAMES: Final = tuple(name for name in PACKAGES if not name.startswith("_"))
"""Names of the targets."""
