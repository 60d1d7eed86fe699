"""What a training step is made of: the loss and the optimiser, as functions of a context.

Gradients come from elsewhere: these are written in ops alone.
"""

from transformer_core.training._adamw import AdamW, Moments
from transformer_core.training._cross_entropy import cross_entropy

__all__ = ["AdamW", "Moments", "cross_entropy"]
