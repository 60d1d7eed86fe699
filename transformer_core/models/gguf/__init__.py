"""Models in GGUF files: metadata as configurations, tensors as parameters. docs/gguf.md lists supported files."""

from transformer_core.models.gguf._config import ARCHITECTURES
from transformer_core.models.gguf._model import GgufModel

__all__ = ["ARCHITECTURES", "GgufModel"]
