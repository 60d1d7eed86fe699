"""Fuzz targets: one file each, with a ``TARGET``.

This file imports none of them: a child imports its own, with instrumented modules.
"""

from collections.abc import Mapping, Sequence
from typing import Final

PACKAGES: Final[Mapping[str, Sequence[str]]] = {
    "_planted": ("tests.fuzz.targets._planted",),
    "adapters": ("transformer_core._config_fields", "transformer_core.checkpoints"),
    "archives": ("run_iree.archive",),
    "bundles": ("run_iree.archive", "tapeline.bundle"),
    "chat_templates": ("tapeline.text",),
    "configs": ("transformer_core._config_fields", "transformer_core.family", "transformer_core.models"),
    "gguf": ("transformer_core.checkpoints.gguf",),
    "gguf_tokenizers": ("tapeline.text",),
    "grammars": ("tapeline.grammar",),
    "pictures": ("tapeline.media.images", "PIL"),
    "quantization": ("transformer_core._config_fields", "transformer_core.checkpoints"),
    "rank_messages": ("run_jax.processes._wire",),
    "renderings": ("jinja2", "tapeline.rendering"),
    "routes": ("starlette.formparsers", "tapeline.grammar", "tapeline.server", "tapeline.text", "tapeline.toolcalls"),
    "safetensors": ("transformer_core.checkpoints",),
    "shards": ("transformer_core.checkpoints",),
    "sounds": ("tapeline.media.audio",),
    "tokenizer_folders": ("tapeline.text",),
    "tokenizer_json": ("tapeline.text",),
    "toolcalls": ("tapeline.toolcalls",),
    "training_lines": ("tapeline.finetuning",),
}
"""Packages and modules per target whose coverage guides it. Instrumenting all of them takes 20 seconds."""

NAMES: Final = tuple(name for name in PACKAGES if not name.startswith("_"))
"""Names of the targets."""
