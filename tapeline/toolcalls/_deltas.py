"""Parts of an answer, as a parser gives them."""

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TextDelta:
    """Text that the answer gains."""

    text: str


@dataclass(frozen=True, slots=True)
class ReasoningDelta:
    """Text that the model's reasoning gains, if the model marks it (gpt-oss: the channel analysis)."""

    text: str


@dataclass(frozen=True, slots=True)
class CallDelta:
    """Growth of a call of a tool.

    Attributes:
        index: number of the call in the answer, from 0.
        id: name of the call, in its first delta; None in all others.
        name: name of the tool, in its first delta; None in all others.
        arguments: piece of the arguments' JSON text.
    """

    index: int
    id: str | None
    name: str | None
    arguments: str


AnswerDelta = TextDelta | ReasoningDelta | CallDelta
"""Part of an answer."""


@dataclass(frozen=True, slots=True)
class ToolCall:
    """Call of a tool.

    Attributes:
        id: name of the call.
        name: name of the tool.
        arguments: JSON text of an object, as the model wrote it.
    """

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class ParsedAnswer:
    """A whole answer.

    Attributes:
        text: answer of the model.
        reasoning: reasoning of the model.
        calls: calls of tools, in order.
    """

    text: str
    reasoning: str
    calls: tuple[ToolCall, ...]

    @classmethod
    def joined(cls, deltas: Iterable[AnswerDelta]) -> "ParsedAnswer":
        """Returns the answer that deltas make.

        >>> ParsedAnswer.joined([TextDelta("a"), CallDelta(0, "i", "f", "{"), CallDelta(0, None, None, "}")])
        ParsedAnswer(text='a', reasoning='', calls=(ToolCall(id='i', name='f', arguments='{}'),))
        """
        text, reasoning = "", ""
        calls: dict[int, ToolCall] = {}
        for delta in deltas:
            match delta:
                case TextDelta(piece):
                    text += piece
                case ReasoningDelta(piece):
                    reasoning += piece
                case CallDelta(index, id, name, arguments):
                    before = calls.get(index) or ToolCall(id or "", name or "", "")
                    calls[index] = ToolCall(before.id, before.name, before.arguments + arguments)
        return cls(text, reasoning, tuple(calls[index] for index in sorted(calls)))
