"""Training a causal language model: its step as an entry point, and the loop that runs it on a device."""

from tools.training._step import training_step

__all__ = ["training_step"]
