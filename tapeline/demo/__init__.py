"""The built-in demo model: a small Llama, trained by tools/demo/train.py, and a tokenizer of its own."""

from tapeline.demo._checkpoint import TOKENIZER, WEIGHTS, write_demo_checkpoint
from tapeline.demo._config import BOS, BOS_ID, CONFIG, EOS, EOS_ID, VOCABULARY_SIZE
