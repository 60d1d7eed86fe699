"""The built-in demo model: a small Llama, trained by train.py on the text beside it, and a tokenizer of its own."""

from tools.demo._checkpoint import write_demo_checkpoint

__all__ = ["write_demo_checkpoint"]
