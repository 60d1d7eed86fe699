"""GGUF files as sources of weights; docs/gguf.md lists supported and refused features.

This is a package of its own because it imports the ``gguf`` package, which nothing else in ``transformer_core`` needs.
"""

from transformer_core.checkpoints.gguf._checkpoint import GgufCheckpoint
from transformer_core.checkpoints.gguf._file import PACKED, PLAIN, GgufFile, packed_bytes
from transformer_core.checkpoints.gguf._metadata import Value
from transformer_core.checkpoints.gguf._writer import GgufSpec, GgufValue, GgufWriter, typed
