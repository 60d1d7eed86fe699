"""Parts of a training step: the loss and the optimizer, as functions of a context.

They are written in ops alone; gradients come from elsewhere.
"""

from transformer_core.training._adamw import AdamW, Moments
from transformer_core.training._cross_entropy import cross_entropy

__all__ = ["AdamW", "Moments", "cross_entropy"]
