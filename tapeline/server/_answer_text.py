"""Text of one answer from its tokens: whole characters, stop strings, log probabilities beside their text."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from generation.engine import TokenEvent
from tapeline.text import StopText, TextStream


@dataclass(frozen=True, slots=True)
class PlacedToken:
    """New token and the offset of its text.

    Attributes:
        event: the token, with its log probability if one was asked for.
        offset: characters of the answer before it.
    """

    event: TokenEvent
    offset: int


@dataclass(frozen=True, slots=True)
class Delta:
    """Part of an answer that may be sent.

    Attributes:
        text: new text of the answer.
        tokens: tokens with text that begins in it, or before it.
    """

    text: str
    tokens: tuple[PlacedToken, ...] = ()


class AnswerText:
    """Text of an answer, which grows token by token.

    Args:
        stream: turns tokens into text.
        stops: strings that end the answer.
        start: characters before the answer, as of an echoed prompt.
        min_tokens: number of first tokens that are not searched for stop strings.
        keep_stop: True keeps the stop string that ends the answer.

    Attributes:
        tokens: number of tokens that were read.
        token_ids: the tokens.
    """

    def __init__(
        self,
        stream: TextStream,
        stops: Sequence[str],
        start: int = 0,
        *,
        min_tokens: int = 0,
        keep_stop: bool = False,
    ) -> None:
        self._stream: Final = stream
        self._stops: Final = StopText(stops, keep=keep_stop)
        self._min_tokens: Final = min_tokens
        self.token_ids: Final[list[int]] = []
        self._decoded = self._sent = start
        self._pending: list[PlacedToken] = []
        self.tokens = 0

    @property
    def stopped(self) -> bool:
        """True once a stop string was read."""
        return self._stops.stopped

    @property
    def stop(self) -> str | None:
        """Stop string that was read; None before."""
        return self._stops.stop

    def push(self, event: TokenEvent) -> Delta:
        """Returns the text that may be sent after another token; empty if it depends on later tokens."""
        self.tokens += 1
        self.token_ids.append(event.token_id)
        self._pending.append(PlacedToken(event, self._decoded))
        return self._delta(self._stream.push(event.token_id))

    def finish(self) -> Delta:
        """Returns the text that was held back, as the answer ends here."""
        if self.stopped:
            return Delta("")
        delta = self._delta(self._stream.finish())
        text = "" if self.stopped else self._stops.finish()
        rest = () if self.stopped else tuple(self._pending)
        return Delta(delta.text + text, delta.tokens + rest)

    def _delta(self, piece: str) -> Delta:
        self._decoded += len(piece)
        text = self._stops.push(piece) if self.tokens > self._min_tokens else piece
        self._sent += len(text)
        settled = [token for token in self._pending if token.offset < self._sent]
        self._pending = self._pending[len(settled) :]
        return Delta(text, tuple(settled))
