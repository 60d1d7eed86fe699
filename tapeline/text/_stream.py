"""Text from ids one by one, never half a character."""

import re
from collections.abc import Collection
from typing import Any

import tokenizers

from lang_core import checked_choices, json_value
from tapeline.text._library import library_errors
from tapeline.text._spaces import SpaceStream
from tapeline.text._token_bytes import HIDDEN

_REPLACEMENT = "\ufffd"
_BYTE = re.compile(r"<0x[0-9A-Fa-f]{2}>")


class TextStream:
    """Turns ids into text as they come. The pieces joined are the decoding of all ids at once.

    Decoding is not a matter of single tokens: a character can be spread over several, and the first token of a sequence
    loses its space. So a window of ids is decoded, which starts with the last printed token; the new part of the
    window's text is printed. It costs the same for every token.

    Held back until later tokens settle it, or `finish` is called:

    * U+FFFD at the end: the bytes so far are the beginning of a character, or are wrong for good.
    * A run of byte-fallback tokens (``<0xE2>``): the decoder takes a run as a whole, and one wrong byte makes every
      byte of the run U+FFFD.

    Args:
        tokenizer: tokenizer of the ids.
        name: name of the tokenizer, for messages.
        keep: special tokens that the text shows, such as marks of tool calls; others are left out.
        cleans: True removes spaces before punctuation, and holds back spaces that a later punctuation mark can remove.
    """

    @checked_choices
    def __init__(
        self,
        tokenizer: tokenizers.Tokenizer,
        name: str = "the tokenizer",
        keep: Collection[str] = (),
        *,
        cleans: bool = False,
    ) -> None:
        self._spaces = SpaceStream() if cleans else None
        self._tokenizer = tokenizer
        self._name = name
        self._special = {token.content for token in dropped_tokens(tokenizer).values()}
        self._keep = self._special & set(keep)
        self._bytes_run_on = _has_byte_fallback(tokenizer)
        self._window: list[int] = []
        self._printed = ""  # that part of the window's text which was printed

    def push(self, token_id: int) -> str:
        """Returns the text that the next id settles; often a word, sometimes nothing."""
        piece = self._push(token_id)
        return piece if self._spaces is None else self._spaces.push(piece)

    def finish(self) -> str:
        """Returns the text that was held back. The stream is then as new."""
        piece = self._gain(self._decode())
        self._window, self._printed = [], ""
        return piece if self._spaces is None else self._spaces.push(piece) + self._spaces.finish()

    def _push(self, token_id: int) -> str:
        token = self._tokenizer.id_to_token(token_id)
        if token in self._keep:
            return self._settle() + token
        if token is None or token in self._special:
            return ""  # decoding drops it too; in the window it would hide that a token has a predecessor
        self._window.append(token_id)
        if self._bytes_run_on and _BYTE.fullmatch(token.removeprefix(HIDDEN)):
            return ""
        text = self._decode()
        settled = text.rstrip(_REPLACEMENT)
        piece = self._gain(settled)
        if settled == text and self._printed == text:
            self._window = [token_id]
            self._printed = self._decode()
        return piece

    def _settle(self) -> str:
        """Returns the text that was held back, as later text cannot change it.

        Later tokens still have a predecessor.
        """
        piece = self._gain(self._decode())
        self._window = self._window[-1:]
        self._printed = self._decode()
        return piece

    def _decode(self) -> str:
        with library_errors(f"{self._name} cannot decode token ids", "it is damaged: copy it again"):
            return self._tokenizer.decode(self._window, skip_special_tokens=True)

    def _gain(self, text: str) -> str:
        """Returns the part that text adds to the printed part; nothing while a decoder still reshapes that part."""
        if not text.startswith(self._printed):
            return ""
        piece = text[len(self._printed) :]
        self._printed = text
        return piece


def dropped_tokens(tokenizer: tokenizers.Tokenizer) -> dict[int, tokenizers.AddedToken]:
    """Returns the added tokens that decoding drops, by id: special ones.

    A token that was added twice, and was special only once, does not say so itself.
    """
    return {
        number: token
        for number, token in tokenizer.get_added_tokens_decoder().items()
        if token.special or (tokenizer.decode([number], skip_special_tokens=False) and not tokenizer.decode([number]))
    }


def _has_byte_fallback(tokenizer: tokenizers.Tokenizer) -> bool:
    if tokenizer.decoder is None:
        return False
    state: dict[str, Any] = json_value(tokenizer.decoder.__getstate__())
    return any(one.get("type") == "ByteFallback" for one in (state, *state.get("decoders", ())))
