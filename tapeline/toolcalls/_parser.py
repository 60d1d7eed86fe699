"""Parsers of answers: text, reasoning and calls out of text that comes in pieces."""

import secrets
import string
from collections.abc import Callable, Collection
from typing import Final, Protocol

from lang_core import checked_choices
from tapeline.toolcalls._deltas import AnswerDelta, CallDelta, TextDelta

_LETTERS: Final = string.ascii_letters + string.digits


class AnswerParser(Protocol):
    """Parser of one answer.

    The same text gives the same answer in whatever pieces it comes. Parts of a mark are never returned as text, unless
    it turns out to be none; a call that is damaged, or of a tool that was not given, comes as text.
    """

    @property
    def calls(self) -> int:
        """Number of calls so far; more than 0 makes the finish reason ``tool_calls``."""
        ...

    def push(self, text: str) -> list[AnswerDelta]:
        """Returns the deltas that the next piece of text settles; often one, sometimes none."""
        ...

    def finish(self, *, cut: bool = False) -> list[AnswerDelta]:
        """Returns the deltas that were held back, as the answer ends here.

        Args:
            cut: True if the answer was cut off: a mark that has begun is dropped, and a call that has begun is given
                as far as it came.
        """
        ...


class PlainParser:
    """Parser of an answer that is nothing but text."""

    @property
    def calls(self) -> int:
        """Number of calls so far: none."""
        return 0

    def push(self, text: str) -> list[AnswerDelta]:
        """Returns the text."""
        return [TextDelta(text)] if text else []

    @checked_choices
    def finish(self, *, cut: bool = False) -> list[AnswerDelta]:
        """Returns nothing, for nothing was held back."""
        return []


class CallWriter:
    """Deltas of an answer's calls.

    Args:
        new_id: makes names of calls.
    """

    def __init__(self, new_id: Callable[[], str]) -> None:
        self._new_id: Final = new_id
        self.count = 0

    def begin(self, name: str, arguments: str = "") -> CallDelta:
        """Returns the first delta of a new call."""
        self.count += 1
        return CallDelta(self.count - 1, self._new_id(), name, arguments)

    def more(self, arguments: str) -> CallDelta:
        """Returns a further delta of the last call."""
        return CallDelta(self.count - 1, None, None, arguments)


def long_id() -> str:
    """Returns a new name of a call, as OpenAI's API has them."""
    return f"call_{_random(24)}"


def short_id() -> str:
    """Returns a new name of a call, as Mistral's templates take them: nine letters and digits."""
    return _random(9)


def _random(size: int) -> str:
    return "".join(secrets.choice(_LETTERS) for _ in range(size))


NewId = Callable[[], str]
ToolNames = Collection[str]
