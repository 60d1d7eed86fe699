"""Fine-tuning of checkpoints on JAX: all parameters, or a LoRA adapter (docs/training.md).

Importing this room loads JAX.
"""

from tapeline.finetuning._adapter import adapted_modules, changes_of, first_values
from tapeline.finetuning._objective import adapter_objective, full_objective
from tapeline.finetuning._options import TrainKeywords, TrainOptions
from tapeline.finetuning._output import write_adapter
from tapeline.finetuning._stored import StoredLayout
from tapeline.finetuning._train import TrainedModel, train

__all__ = [
    "StoredLayout",
    "TrainKeywords",
    "TrainOptions",
    "TrainedModel",
    "adapted_modules",
    "adapter_objective",
    "changes_of",
    "first_values",
    "full_objective",
    "train",
    "write_adapter",
]
