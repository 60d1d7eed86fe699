"""Parts of a training step: the loss, the optimizer and low-rank changes, as functions of a context.

They are written in ops alone; gradients come from elsewhere.
"""

from transformer_core.training._adamw import AdamW, Moments
from transformer_core.training._cross_entropy import cross_entropy, weighted_cross_entropy
from transformer_core.training._low_rank import LowRankChange, low_rank_linears, noted_linears
