"""The least number of tokens that a text can have, known without encoding it: encoding takes seconds for megabytes.

A token of byte-level BPE, and of BPE with tokens for single bytes, stands for at most as many letters as it is written
with, and each letter has a token. That holds only for the steps that are listed here: a tokenizer with other steps is
unbounded.
"""

from collections.abc import Callable, Iterator
from typing import Any, Final

import tokenizers
from tokenizers import models

from lang_core import json_value
from tapeline.text._token_bytes import bytes_of_letters

_NFC: Final = 4  # most letters of which NFC makes one: no letter has a longer canonical decomposition
_BYTES_OF_UTF8: Final = frozenset({*range(0xC0), *range(0xC2, 0xF5)})
_KEEPING: Final = frozenset({"ByteLevel", "Digits", "Metaspace", "Punctuation", "Split"})  # pre-tokenizers
_REMOVED: Final = "Removed"
_SPACES: Final = tuple(filter(str.isspace, map(chr, range(0x3001))))  # the last one is U+3000


def least_tokens(tokenizer: tokenizers.Tokenizer, longest_begin: int = 0) -> Callable[[str], int] | None:
    """Returns a function that gives a lower bound of a text's number of tokens; None if none is known.

    Args:
        tokenizer: tokenizer without padding and truncation.
        longest_begin: letters at the beginning of a text that become one token without the library.
    """
    shrinking = _shrinking(tokenizer)
    if shrinking is None or not _covers(tokenizer):
        return None
    added = tokenizer.get_added_tokens_decoder().values()
    forms = [token.content for token in added]
    normalizer = tokenizer.normalizer
    if normalizer is not None:
        forms += [normalizer.normalize_str(token.content) for token in added if token.normalized]
    longest = max(map(len, (*tokenizer.get_vocab(with_added_tokens=False), *forms)), default=0)
    letters = max(shrinking * longest, longest_begin, 1)
    strips = any(token.lstrip or token.rstrip for token in added)  # such a token takes the spaces around it

    def least(text: str) -> int:
        spaces = sum(map(text.count, _SPACES)) if strips else 0
        return -(-(len(text) - spaces) // letters)

    return least


def _shrinking(tokenizer: tokenizers.Tokenizer) -> int | None:
    """Returns the most letters of a text that the steps before the model make one of; None if they may drop any."""
    shrinking = 1
    for step in _steps(tokenizer.normalizer):
        kind = step["type"]
        if kind == "NFC":
            shrinking *= _NFC
        elif kind == "Replace":
            searched, content = step["pattern"].get("String"), step["content"]
            if not searched or len(content) < len(searched) or any(map(str.isspace, content)):
                return None
        elif kind != "Prepend":
            return None
    for step in _steps(tokenizer.pre_tokenizer):
        if step["type"] not in _KEEPING or step.get("behavior") == _REMOVED:
            return None
    return shrinking


def _covers(tokenizer: tokenizers.Tokenizer) -> bool:
    """Returns True if the model has tokens for all letters that it gets, so that it drops and joins none."""
    model, vocabulary = tokenizer.model, tokenizer.get_vocab(with_added_tokens=False)
    if not isinstance(model, models.BPE) or model.continuing_subword_prefix or model.end_of_word_suffix:
        return False
    if any(step["type"] == "ByteLevel" for step in _steps(tokenizer.pre_tokenizer)):
        return all(letter in vocabulary for letter, byte in bytes_of_letters().items() if byte[0] in _BYTES_OF_UTF8)
    return model.byte_fallback and all(f"<0x{byte:02X}>" in vocabulary for byte in _BYTES_OF_UTF8)


def _steps(step: Any) -> Iterator[dict[str, Any]]:
    """Yields the state of a normalizer or a pre-tokenizer; of a sequence, the states of its steps."""
    if step is None:
        return
    open_steps: list[dict[str, Any]] = [json_value(step.__getstate__())]
    while open_steps:
        state = open_steps.pop()
        if state["type"] == "Sequence":
            open_steps += state.get("normalizers") or state.get("pretokenizers") or []
        else:
            yield state
