"""Answers of gpt-oss: messages with a channel and, if one is a call, a recipient ("harmony")."""

import re
from collections.abc import Callable
from typing import Final

from tapeline.toolcalls._deltas import ReasoningDelta, TextDelta
from tapeline.toolcalls._parser import NewId, ToolNames
from tapeline.toolcalls._scan import arguments_of, first_mark, held_length
from tapeline.toolcalls._state_parser import State, StateParser

START: Final = "<|start|>"
CHANNEL: Final = "<|channel|>"
MESSAGE: Final = "<|message|>"
CONSTRAIN: Final = "<|constrain|>"
END: Final = "<|end|>"
CALL: Final = "<|call|>"
RETURN: Final = "<|return|>"
MARKS: Final = (START, CHANNEL, MESSAGE, CONSTRAIN, END, CALL, RETURN)

_ENDS: Final = (END, CALL, RETURN, START)
_HEADS: Final = (START, CHANNEL, MESSAGE, "to=functions.")
_CHANNEL_NAME: Final = re.compile(r"<\|channel\|>\s*(\w+)")
_RECIPIENT: Final = re.compile(r"to=functions\.([\w.-]+)")
_REASONING: Final = "analysis"


class HarmonyParser(StateParser):
    """Parser of gpt-oss's answers.

    The channel analysis is reasoning, final and commentary are text, and a message to ``functions.NAME`` is a call.

    Arguments are those of ``StateParser``.
    """

    def __init__(self, tools: ToolNames, new_id: NewId, streamed: bool) -> None:
        super().__init__(tools, new_id, streamed)
        self._header = ""
        self._body = ""  # of a call that is held until it is whole
        self._tool = ""

    def _first(self) -> State:
        return self._beginning

    def _beginning(self, final: bool) -> bool:
        """The first message's header, unless the prompt has it already."""
        text = self._text.lstrip()
        if any(text.startswith(head) for head in _HEADS):
            return self._go(self._in_header)
        if not final and any(head.startswith(text) for head in _HEADS):
            return False
        return self._go(self._in_text)

    def _between(self, final: bool) -> bool:
        """Skips to the next message's header."""
        if not self._text:
            return False
        return self._go(self._in_header)

    def _in_header(self, final: bool) -> bool:
        head, mark, rest = self._text.partition(MESSAGE)
        if not mark:
            if final:
                self._give(TextDelta("" if self._cut else head))
                self._text = ""
            return False
        self._header = head + mark
        self._text = rest
        return self._go(self._body_state())

    def _body_state(self) -> State:
        """Returns how the body of the header's message is read."""
        recipient = _RECIPIENT.search(self._header)
        if recipient and recipient[1] in self._tools:
            self._tool = recipient[1]
            if self._streamed:
                self._out.append(self._writer.begin(self._tool))
                return self._in_arguments
            self._body = ""
            return self._in_call
        if recipient:
            self._give(TextDelta(self._header))
        channel = _CHANNEL_NAME.search(self._header)
        return self._in_reasoning if channel and channel[1] == _REASONING else self._in_text

    def _in_text(self, final: bool) -> bool:
        return self._stretch(final, lambda text: self._give(TextDelta(text)), self._between)

    def _in_reasoning(self, final: bool) -> bool:
        return self._stretch(final, lambda text: self._give(ReasoningDelta(text)), self._between)

    def _in_arguments(self, final: bool) -> bool:
        return self._stretch(final, lambda text: self._out.append(self._writer.more(text)), self._between)

    def _in_call(self, final: bool) -> bool:
        going_on = self._stretch(final, self._hold, self._whole_call)
        return self._go(self._whole_call) if final and self._state == self._in_call else going_on

    def _hold(self, text: str) -> None:
        self._body += text

    def _whole_call(self, final: bool) -> bool:
        arguments = arguments_of(self._body.strip())
        if arguments is None and self._cut and not self._text:
            self._out += [self._writer.begin(self._tool), self._writer.more(self._body.lstrip())]
        elif arguments is None:
            self._give(TextDelta(self._header + self._body))
        else:
            self._out += [self._writer.begin(self._tool), self._writer.more(arguments)]
        self._body = ""
        return self._go(self._between)

    def _stretch(self, final: bool, give: Callable[[str], None], then: State) -> bool:
        """Returns the settled part of the message, and continues after the mark that ends it."""
        mark = first_mark(self._text, _ENDS)
        if mark is None:
            settled = len(self._text) - (0 if final and not self._cut else held_length(self._text, _ENDS))
            if settled:
                give(self._text[:settled])
            self._text = "" if final else self._text[settled:]
            return False
        place, name = mark
        if place:
            give(self._text[:place])
        self._text = self._text[place + (0 if name == START else len(name)) :]
        return self._go(then)

    def _give(self, delta: TextDelta | ReasoningDelta) -> None:
        if delta.text:
            self._out.append(delta)
