"""What tools:embed does with a bundle."""

from tapeline.embedding._embedder import SentenceEmbedder

__all__ = ["SentenceEmbedder"]
