"""Reasoning between marks such as ``<think>`` and ``</think>``, before an answer that another parser reads."""

from typing import Final

from lang_core import checked_choices
from tapeline.text import ChatTemplate
from tapeline.toolcalls._deltas import AnswerDelta, ReasoningDelta
from tapeline.toolcalls._parser import AnswerParser
from tapeline.toolcalls._scan import held_length

_MARKS: Final = (("<think>", "</think>"), ("[THINK]", "[/THINK]"), ("<seed:think>", "</seed:think>"))


def thinking_marks(template: ChatTemplate) -> tuple[str, str] | None:
    """Returns the marks around the reasoning of a model, which its template has; None if there are none."""
    return next((marks for marks in _MARKS if template.mentions(marks[1])), None)


class ThinkParser:
    """Parser of an answer that begins with reasoning; it has the protocol ``AnswerParser``.

    Reasoning stands at the beginning alone. Spaces around its marks are nobody's.

    Args:
        marks: marks before and after the reasoning.
        inner: parser of the following text.
        begun: True if the prompt ends with the first mark.
    """

    @checked_choices
    def __init__(self, marks: tuple[str, str], inner: AnswerParser, *, begun: bool) -> None:
        self._opening, self._closing = marks
        self._inner: AnswerParser = inner
        self._reasoning = begun  # whether the text so far is reasoning
        self._answering = False  # whether the text is the inner parser's
        self._shown = False  # whether any of the reasoning was given
        self._text = ""  # what is not settled

    @property
    def calls(self) -> int:
        """Number of calls so far."""
        return self._inner.calls

    def push(self, text: str) -> list[AnswerDelta]:
        """Returns the deltas that the next piece of text settles."""
        self._text += text
        return self._settled(final=False, cut=False)

    @checked_choices
    def finish(self, *, cut: bool = False) -> list[AnswerDelta]:
        """Returns the deltas that were held back, as the answer ends here."""
        return [*self._settled(final=True, cut=cut), *self._inner.finish(cut=cut)]

    def _settled(self, *, final: bool, cut: bool) -> list[AnswerDelta]:
        out: list[AnswerDelta] = []
        if not self._answering and not self._reasoning:
            self._look_for_opening(final)
        if self._reasoning:
            out += self._reason(final, cut)
        if self._answering and self._text:
            text, self._text = self._text, ""
            out += self._inner.push(text)
        return out

    def _look_for_opening(self, final: bool) -> None:
        start = self._text.lstrip()
        if start.startswith(self._opening):
            self._reasoning = True
            self._text = start[len(self._opening) :]
        elif final or not self._opening.startswith(start):
            self._answering = True

    def _reason(self, final: bool, cut: bool) -> list[AnswerDelta]:
        """Gives the reasoning, up to its mark; spaces at its beginning and before the mark are not given."""
        if not self._shown:
            self._text = self._text.lstrip()
        place = self._text.find(self._closing)
        if place >= 0:
            reasoning = self._text[:place].rstrip()
            rest = self._text[place + len(self._closing) :]
            self._reasoning, self._text = False, ""
            self._spaces(rest)
            return [ReasoningDelta(reasoning)] if reasoning else []
        held = held_length(self._text, (self._closing,)) if cut or not final else 0
        settled = self._text[: len(self._text) - held]
        shown = settled if final else settled.rstrip()
        self._text = "" if final else self._text[len(shown) :]
        self._shown = self._shown or bool(shown)
        return [ReasoningDelta(shown)] if shown else []

    def _spaces(self, rest: str) -> None:
        """Continues with the text after the reasoning, without the line ends before it."""
        self._answering = True
        self._inner = _Stripped(self._inner)
        self._text = rest


class _Stripped:
    """Parser that does not see the spaces at the beginning of the text."""

    def __init__(self, inner: AnswerParser) -> None:
        self._inner: Final = inner
        self._begun = False

    @property
    def calls(self) -> int:
        return self._inner.calls

    def push(self, text: str) -> list[AnswerDelta]:
        text = text if self._begun else text.lstrip()
        self._begun = self._begun or bool(text)
        return self._inner.push(text) if text else []

    @checked_choices
    def finish(self, *, cut: bool = False) -> list[AnswerDelta]:
        return self._inner.finish(cut=cut)
