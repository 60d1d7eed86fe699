"""Fine-tuning of checkpoints on JAX: all parameters, or a LoRA adapter (docs/training.md).

Importing this room loads JAX.
"""

from tapeline.finetuning._options import TrainKeywords, TrainOptions
from tapeline.finetuning._train import TrainedModel, train

__all__ = ["TrainKeywords", "TrainOptions", "TrainedModel", "train"]
