"""State machine under the parsers of answers: text comes in pieces, and states settle parts of it."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Final

from lang_core import checked_choices
from tapeline.toolcalls._deltas import AnswerDelta
from tapeline.toolcalls._parser import CallWriter, NewId, ToolNames

State = Callable[[bool], bool]


class StateParser(ABC):
    """Parser with methods as states; it has the protocol ``AnswerParser``.

    A state takes whether the answer has ended, and returns whether another one, or it again, can settle more now.

    Args:
        tools: names of the tools that may be called.
        new_id: makes names of calls.
        streamed: whether arguments are given as they come. Otherwise a call is given when it is whole, for it may
            turn out to be damaged; under a grammar it cannot.
    """

    def __init__(self, tools: ToolNames, new_id: NewId, streamed: bool) -> None:
        self._tools: Final = tools
        self._streamed: Final = streamed
        self._writer: Final = CallWriter(new_id)
        self._text = ""  # what is not settled
        self._cut = False  # whether the answer ended because it was cut off
        self._out: list[AnswerDelta] = []
        self._state: State = self._first()

    @property
    def calls(self) -> int:
        """Number of calls so far."""
        return self._writer.count

    def push(self, text: str) -> list[AnswerDelta]:
        """Returns the deltas that the next piece of text settles."""
        self._text += text
        return self._run(final=False)

    @checked_choices
    def finish(self, *, cut: bool = False) -> list[AnswerDelta]:
        """Returns the deltas that were held back, as the answer ends here.

        Without marks that have begun if it was cut off.
        """
        self._cut = cut
        return self._run(final=True)

    @abstractmethod
    def _first(self) -> State:
        """Returns the state in which an answer begins."""

    def _run(self, final: bool) -> list[AnswerDelta]:
        while self._state(final):
            pass
        out, self._out = self._out, []
        return out

    def _go(self, state: State) -> bool:
        self._state = state
        return True
