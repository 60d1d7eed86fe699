"""Tokenizers of bytes as letters, in the format of tokenizer.json."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

ADDED_FLAGS: Final = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
"""Flags of an added token that is taken as it stands."""


def byte_level_tokenizer(vocabulary: Mapping[str, int], added: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Returns the fields of a tokenizer that merges nothing.

    Args:
        vocabulary: numbers of tokens.
        added: added tokens, as tokenizer.json has them.
    """
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [dict(token) for token in added],
        "normalizer": None,
        "pre_tokenizer": byte_level,
        "post_processor": None,
        "decoder": byte_level,
        "model": {"type": "BPE", "vocab": dict(vocabulary), "merges": []},
    }
