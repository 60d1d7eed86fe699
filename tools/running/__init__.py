"""What tools:run, tools:generate and tools:embed do with a bundle."""

from tools.running._arrays import read_inputs, write_results
from tools.running._dump import dumper_of
from tools.running._embedder import SentenceEmbedder
from tools.running._model import BundleBatch, BundleModel, encoder_inputs, has_row_positions
from tools.running._stats import GenerationStats

__all__ = [
    "BundleBatch",
    "BundleModel",
    "GenerationStats",
    "SentenceEmbedder",
    "dumper_of",
    "encoder_inputs",
    "has_row_positions",
    "read_inputs",
    "write_results",
]
