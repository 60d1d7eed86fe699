"""What tools:embed does with a bundle."""

from tools.embedding._embedder import SentenceEmbedder

__all__ = ["SentenceEmbedder"]
