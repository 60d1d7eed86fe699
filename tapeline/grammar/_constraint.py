"""Constraint on the tokens of one answer."""

from collections.abc import Iterable
from typing import Final

import numpy as np
from llguidance import LLMatcher

from lang_core import InputError
from tapeline.grammar._messages import short
from tapeline.grammar._table import TokenTable

_NO_MORE: Final = "NoExtension"  # no byte may follow, and the text is not complete
_CONTRADICTION: Final = "the grammar allows no text that begins with the tokens so far: its parts contradict each other"


class GrammarConstraint:
    """Tokens that may come next in an answer; has the protocol ``TokenConstraint`` of the engine.

    One thread at a time may use it. An error of ``mask`` or ``accept`` is final: the answer can go on in no way that
    the grammar allows, and must end with that error.

    Args:
        matcher: at its beginning, and of this answer alone.
        table: of the tokenizer.
        ends: ids that end an answer. They are allowed where the text so far is complete, and nowhere else.
    """

    def __init__(self, matcher: LLMatcher, table: TokenTable, ends: Iterable[int]) -> None:
        self._matcher: Final = matcher
        self._table: Final = table
        self._ends: Final = sorted(ends)
        self._end_set: Final = frozenset(self._ends)
        self._bits: Final = np.zeros(table.words, np.uint32)
        self._ended = False

    @property
    def finished(self) -> bool:
        """Returns whether the text is complete and cannot go on: only an end token may follow."""
        return self._ended or self._matcher.is_stopped()

    def mask(self, out: np.ndarray) -> None:
        """Writes which ids may come next.

        Args:
            out: bool [V]; V is the model's vocabulary, ids that the tokenizer does not have are False.

        Raises:
            InputError: nothing may: the grammar allows no text that begins with the tokens so far, or is too complex.
        """
        out[:] = False
        complete = self._ended or self._fill(out)
        size = len(out)
        for end in self._ends:
            if end < size:
                out[end] = complete

    def accept(self, token_id: int) -> None:
        """Notes the token that came next, an end token included.

        Raises:
            InputError: it was not allowed.
        """
        if token_id in self._end_set:
            if not (self._ended or self._matcher.is_accepting()):
                raise InputError(f"token {token_id} ends the answer before the text is what the grammar asks for")
            self._ended = True
        elif self._ended or not self._matcher.consume_token(token_id):
            reason = short(self._matcher.get_error())
            raise InputError(
                f"token {token_id} is not what the grammar allows here ({reason or 'the answer has ended'})"
            )

    def _fill(self, out: np.ndarray) -> bool:
        """Writes the mask of all but ends, and returns whether the text so far is complete."""
        matcher, table = self._matcher, self._table
        matcher.unsafe_compute_mask_ptr(self._bits.ctypes.data, self._bits.nbytes)
        if matcher.is_error():  # a mask of an error allows the end
            raise InputError(self._failure())
        allowed = np.unpackbits(self._bits.view(np.uint8), bitorder="little").view(np.bool_)
        size = min(len(out), table.size)
        out[:size] = allowed[:size]
        if allowed[table.end] and not matcher.is_accepting():  # no token at all is written so, too
            raise InputError(_CONTRADICTION)
        return bool(allowed[table.end])

    def _failure(self) -> str:
        error = self._matcher.get_error()
        return (
            _CONTRADICTION
            if _NO_MORE in error
            else f"the grammar is too complex to go on ({short(error)}): simplify it"
        )
