"""Training a causal language model: its step as an entry point, its data, and the loop that runs it on a device."""

from tapeline.finetuning.step._entry_point import training_step
from tapeline.finetuning.step._train import Schedule, open_step, train
from tapeline.finetuning.step._windows import Windows
