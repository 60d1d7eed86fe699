"""Fuyu, text: a Persimmon beside a projection of patches of pictures, which is left out."""

from dataclasses import replace
from typing import Final

from transformer_core.family._wrapped import text_of
from transformer_core.models.families._persimmon import PERSIMMON

_TEXT: Final = text_of(
    PERSIMMON,
    "FuyuForCausalLM",
    "fuyu",
    defaults={  # transformers'
        "hidden_size": 4096,
        "intermediate_size": 16384,
        "max_position_embeddings": 16384,
        "num_attention_heads": 64,
        "num_hidden_layers": 36,
        "vocab_size": 262144,
    },
    tied=False,
)
FUYU: Final = replace(_TEXT, ignorable=(*_TEXT.ignorable, "vision_embed_tokens.*", "model.vision_embed_tokens.*"))
