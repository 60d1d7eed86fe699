"""A tokenizer as llguidance needs it: the bytes of each token."""

import json
import threading
from collections.abc import Mapping
from typing import Any, Final
from weakref import WeakKeyDictionary

from lang_core import LARGE_JSON_BOUNDS, InputError, json_value
from tapeline.grammar._workers import WorkerPool
from tapeline.text import Tokenizer

_END: Final = "<|end of the grammar|>"

# How `▁` of a Metaspace decoder is read: as the decoders are that the library knows.
_REPLACING: Final = {
    "type": "Sequence",
    "decoders": [
        {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
        {"type": "ByteFallback"},
        {"type": "Fuse"},
    ],
}


class TokenTable:
    """Tokens of a tokenizer, and one more, the end.

    The end is a token outside the tokenizer, so that each request can have its own end tokens.

    Attributes:
        workers: processes that have llguidance's table.
        size: number of the tokenizer's own ids.
        end: id of the end, one beyond them.
        specials: texts of special tokens.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        """Builds the table of a tokenizer.

        Raises:
            InputError: its tokens do not stand for bytes of their own.
        """
        self.size: Final = tokenizer.vocabulary_size
        self.end: Final = self.size
        state = json_value(tokenizer.serialized(), LARGE_JSON_BOUNDS)
        added = state.get("added_tokens") or ()
        self.specials: Final = tuple(token["content"] for token in added if token.get("special") and token["content"])
        state["added_tokens"] = [*(state.get("added_tokens") or ()), _end_token(self.end)]
        state["decoder"] = _decoder(state.get("decoder"))
        try:
            self.workers: Final = WorkerPool(json.dumps(state, ensure_ascii=False), self.end)
        except InputError as error:
            raise InputError(
                f"{tokenizer.path}: grammars and JSON need tokens that are bytes, as in byte-level BPE or with byte "
                f"fallback ({error!s:.200}): ask for an answer without them, or use a model with such a tokenizer"
            ) from error


_tables: WeakKeyDictionary[Tokenizer, TokenTable] = WeakKeyDictionary()
_lock: Final = threading.Lock()


def table_of(tokenizer: Tokenizer) -> TokenTable:
    """Returns a tokenizer's table, built the first time and kept for as long as the tokenizer lives."""
    with _lock:
        table = _tables.get(tokenizer)
        if table is None:
            table = _tables[tokenizer] = TokenTable(tokenizer)
        return table


def _decoder(decoder: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    spaces = decoder is not None and decoder.get("type") == "Metaspace" and decoder.get("replacement", "▁") == "▁"
    return _REPLACING if spaces else decoder


def _end_token(index: int) -> Mapping[str, Any]:
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    return {"id": index, "content": _END, "special": True, **flags}
