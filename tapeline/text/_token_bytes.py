"""The bytes of single tokens, which need not be whole characters."""

import functools
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import tokenizers

from lang_core import json_value

_BYTE: Final = re.compile(r"<0x([0-9A-Fa-f]{2})>")
HIDDEN: Final = "\ue000"
"""First letter of the name of a token that no text may match (of the private use area)."""
_SPACE: Final = "\u2581"  # sentencepiece's sign for a space


def token_bytes(tokenizer: tokenizers.Tokenizer) -> Callable[[int], bytes]:
    """Returns a function that gives the bytes of a token, empty for an id that is none.

    Tokens that were added, special ones too, are the text that they are written as. For all others, the decoder defines
    the meaning of their characters: bytes (GPT-2's table), or text in which a sign stands for the space.
    """
    added = tokenizer.get_added_tokens_decoder()
    kinds = set(_kinds(tokenizer))
    plain = _byte_level if "ByteLevel" in kinds else functools.partial(_sentencepiece, fallback="ByteFallback" in kinds)

    def of(token_id: int) -> bytes:
        if token_id in added:
            return added[token_id].content.encode()
        token = tokenizer.id_to_token(token_id)
        return b"" if token is None else plain(token)

    return of


def _kinds(tokenizer: tokenizers.Tokenizer) -> Iterator[str]:
    """Yields the types of the decoder and of those inside it."""
    if tokenizer.decoder is not None:
        state: dict[str, Any] = json_value(tokenizer.decoder.__getstate__())
        yield from (str(one.get("type")) for one in (state, *state.get("decoders", ())))


def _byte_level(token: str) -> bytes:
    table = bytes_of_letters()
    return b"".join(table.get(character) or character.encode() for character in token)


def _sentencepiece(token: str, fallback: bool) -> bytes:
    match = _BYTE.fullmatch(token.removeprefix(HIDDEN)) if fallback else None
    return bytes([int(match[1], 16)]) if match else token.replace(_SPACE, " ").encode()


@functools.cache
def bytes_of_letters() -> Mapping[str, bytes]:
    """Returns the byte that each character of a token stands for, as GPT-2 has it.

    Printable bytes stand for themselves, all others, in order, for the characters from U+0100.
    """
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [value for value in range(256) if value not in printable]
    return {chr(value): bytes([value]) for value in printable} | {
        chr(0x100 + index): bytes([value]) for index, value in enumerate(others)
    }
