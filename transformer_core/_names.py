"""Names and numbers that models share with the programs that run their bundles."""

from typing import Final

CONFIG_FILE: Final = "config.json"
"""Name of a checkpoint's configuration."""
DRAFT: Final = "draft"
"""Name of the entry point of prediction heads."""
ALIGN: Final = "align"
"""Entry point of a Whisper that gives the weights of its alignment heads."""

ENCODE_IMAGE: Final = "encode_image"
"""Name of the entry point that turns pixels into embeddings."""
PREFILL_EMBEDDINGS: Final = "prefill_embeddings"
"""Name of the entry point that takes a prompt's embeddings."""
PREFILL_EMBEDDINGS_ROW: Final = "prefill_embeddings_row"
"""The same of a bundle with slots, in as many sizes as its ``prefill_row``."""
ADAPTED: Final = "adapted_"
"""Prefix of the names of entry points with LoRA adapters."""
ADAPTER_TABLES: Final = "adapters."
"""Prefix of the names of the arguments with matrices of adapters: then the place of the sequence in the call."""
PACKED: Final = "packed"
"""Beginning of the names of the entry points of packed texts, ``packed_T``."""
NEXT_IDS: Final = "next_ids"
"""Name of the result with the ids of the largest logits."""
TEXT_ALIGNMENT: Final = 16
"""Keys by whose multiples those of a text begin.

Kernels of attention take so many keys at a time: a text's bits then do not depend on its place in the row.
"""
POSITIONS: Final = ("shared", "per_row")
"""Choices of positions: one for the batch, or one per row."""
WINDOW_CACHES: Final = ("whole", "ring")
"""Caches of layers with windows: every position, or the entries that the window needs."""
