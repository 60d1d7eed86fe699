"""Calls that are JSON objects between marks: Hermes and Qwen, Llama 3, Mistral."""

import re
from dataclasses import dataclass
from typing import Final

from tapeline.toolcalls._deltas import TextDelta
from tapeline.toolcalls._parser import NewId, ToolNames
from tapeline.toolcalls._scan import ValueScanner, arguments_of, call_of, first_mark, held_length
from tapeline.toolcalls._state_parser import State, StateParser

_HEADER: Final = re.compile(r'\{\s*"name"\s*:\s*"([\w.-]+)"\s*,\s*"(?:arguments|parameters)"\s*:\s*(?=\{)')
_FIRST_KEY: Final = re.compile(r'\{\s*"(?:name|arguments|parameters|id|type)"')
_KEY_BEGUN: Final = re.compile(r'\{\s*(?:"\w*"?)?')
_NAME: Final = re.compile(r"[\w.-]{1,64}\Z")
_LONGEST_NAME: Final = 100


@dataclass(frozen=True, slots=True)
class JsonMarks:
    """Marks around calls.

    Attributes:
        opens: marks before calls.
        list_open: mark that may follow, before a list of calls; empty for none.
        separators: marks between the calls after one opening mark.
        closes: marks after the last of them.
        bare: whether an answer may begin with a call without a mark.
        arguments: mark between name and arguments, if a call is written as both; empty if it is an object.
        call_id: mark before the name of a call, which may stand before ``arguments``.
    """

    opens: tuple[str, ...]
    list_open: str = ""
    separators: tuple[str, ...] = ()
    closes: tuple[str, ...] = ()
    bare: bool = False
    arguments: str = ""
    call_id: str = ""


class JsonCallParser(StateParser):
    """Parser of answers with calls that are JSON objects.

    Args:
        marks: of the family.
        tools: as of ``StateParser``; ``new_id`` and ``streamed`` too.
    """

    def __init__(self, marks: JsonMarks, tools: ToolNames, new_id: NewId, streamed: bool) -> None:
        self._marks: Final = marks
        self._given_back = ""  # text that the call being read began with, should it be none
        self._scanner: ValueScanner | None = None
        self._name: str | None = None  # of a call whose arguments are being given
        self._sent = 0  # place in the text up to which its arguments were given
        super().__init__(tools, new_id, streamed)

    def _first(self) -> State:
        return self._beginning if self._marks.bare else self._in_text

    def _beginning(self, final: bool) -> bool:
        """A call without a mark, if the answer begins with one."""
        start = self._text.lstrip()
        if not start:
            return self._go(self._in_text) if final else False
        if not start.startswith("{"):
            return self._go(self._in_text)
        self._open(self._text[: -len(start)], start)
        return True

    def _in_text(self, final: bool) -> bool:
        """Text, until a mark comes; spaces before one are not given."""
        mark = first_mark(self._text, self._marks.opens)
        if mark:
            place, name = mark
            before = self._text[:place]
            shown = before.rstrip()
            self._say(shown)
            self._open(before[len(shown) :] + name, self._text[place + len(name) :])
            self._state = self._after_mark
            return True
        held = held_length(self._text, self._marks.opens) if self._cut or not final else 0
        settled = self._text[: len(self._text) - held]
        shown = settled if final else settled.rstrip()
        self._say(shown)
        self._text = "" if final else self._text[len(shown) :]
        return False

    def _after_mark(self, final: bool) -> bool:
        """Spaces, and the mark of a list."""
        rest = self._text.lstrip()
        if not rest:
            return self._unfinished() if final else False
        opening = self._marks.list_open
        if opening and rest.startswith(opening):
            self._give_back_from(rest[len(opening) :])
            return self._go(self._after_separator)
        self._give_back_from(rest)
        return self._go(self._call)

    def _call(self, final: bool) -> bool:
        """One call, from its first character."""
        if not self._text:
            return self._unfinished() if final else False
        if self._name is None and self._marks.arguments and not self._text.startswith("{"):
            return self._named_call(final)
        if self._scanner is None:
            if not self._may_be_call():
                return self._fail()
            self._scanner = ValueScanner(0)
        return self._object(final)

    def _object(self, final: bool) -> bool:
        """A call that is an object with the name and the arguments."""
        assert self._scanner is not None
        if self._streamed and self._name is None:
            header = _HEADER.match(self._text)
            if header and header[1] in self._tools:
                return self._begin_streaming(header[1], header.end())
        if not self._may_be_call():
            return self._fail()
        end = self._scanner.end(self._text)
        if end is None:
            return self._unfinished() if final else False
        call = call_of(self._text[:end], self._tools)
        if call is None:
            return self._fail()
        self._out.append(self._writer.begin(call[0]))
        self._out.append(self._writer.more(call[1]))
        return self._called(end)

    def _named_call(self, final: bool) -> bool:
        """A call that is the tool's name, a mark, and the arguments."""
        head, mark, rest = self._text.partition(self._marks.arguments)
        held = 0 if mark or final else held_length(head, (self._marks.arguments,))
        # Whether a head is no name does not depend on how much of the text has come.
        if len(head) - held > _LONGEST_NAME or "{" in head:
            return self._fail()
        if not mark:
            return self._unfinished() if final else False
        name = head.partition(self._marks.call_id)[0].strip() if self._marks.call_id else head.strip()
        if name not in self._tools or not _NAME.match(name):
            return self._fail()
        value = rest.lstrip()
        if not value:
            return self._unfinished() if final else False
        start = len(self._text) - len(value)
        if self._streamed:
            return self._begin_streaming(name, start)
        self._scanner = self._scanner or ValueScanner(start)
        end = self._scanner.end(self._text) if value.startswith("{") else start
        if end is None and not final:
            return False
        if end is None and self._cut:
            return self._cut_call(name, start)
        arguments = arguments_of(self._text[start:end]) if end else None
        if arguments is None:
            return self._fail()
        self._out += [self._writer.begin(name), self._writer.more(arguments)]
        return self._called(end or start)

    def _begin_streaming(self, name: str, start: int) -> bool:
        self._name = name
        self._sent = start
        self._scanner = ValueScanner(start)
        self._out.append(self._writer.begin(name))
        return self._go(self._arguments)

    def _arguments(self, final: bool) -> bool:
        """Arguments of a call that a grammar holds to its form, as they come."""
        assert self._scanner is not None
        end = self._scanner.end(self._text)
        stop = len(self._text) if end is None else end
        if stop > self._sent:
            self._out.append(self._writer.more(self._text[self._sent : stop]))
            self._sent = stop
        if end is None:
            return False
        self._name = None
        self._text = self._text[end:]
        return self._go(self._after_arguments) if not self._marks.arguments else self._called(0)

    def _after_arguments(self, final: bool) -> bool:
        """The brace that ends the call's object."""
        rest = self._text.lstrip()
        if not rest:
            return False
        return self._called(len(self._text) - len(rest) + rest.startswith("}"))

    def _called(self, end: int) -> bool:
        self._text = self._text[end:]
        self._scanner = None
        self._given_back = ""
        return self._go(self._after_call)

    def _after_call(self, final: bool) -> bool:
        """Marks after a call; spaces there are nobody's."""
        self._text = self._text.lstrip()
        marks = (*self._marks.separators, *self._marks.closes)
        for mark in marks:
            if self._text.startswith(mark):
                more = mark in self._marks.separators
                self._open(mark if more else "", self._text[len(mark) :])
                self._state = self._after_separator if more else self._after_close
                return True
        if not final and (not self._text or any(mark.startswith(self._text) for mark in marks)):
            return False
        return self._go(self._in_text)

    def _after_separator(self, final: bool) -> bool:
        rest = self._text.lstrip()
        if not rest:
            return self._unfinished() if final else False
        self._give_back_from(rest)
        return self._go(self._call)

    def _after_close(self, final: bool) -> bool:
        self._text = self._text.lstrip()
        return self._go(self._in_text) if self._text or final else False

    def _may_be_call(self) -> bool:
        """Returns whether the text may become a call, as far as its first key tells."""
        if not self._text.startswith("{"):
            return False
        begun = _KEY_BEGUN.match(self._text)
        if begun is None or begun.end() < len(self._text):
            return _FIRST_KEY.match(self._text) is not None
        return True

    def _unfinished(self) -> bool:
        """Ends an answer that ends inside a call: one that was cut off keeps the arguments so far, without marks."""
        header = _HEADER.match(self._text) if self._cut else None
        if header and header[1] in self._tools:
            return self._cut_call(header[1], header.end())
        if not self._cut or not self._given_back.strip():
            return self._fail()
        self._text = ""
        return self._leave_call()

    def _cut_call(self, name: str, start: int) -> bool:
        end = ValueScanner(start).end(self._text)
        self._out += [self._writer.begin(name), self._writer.more(self._text[start:end])]
        self._text = ""
        return self._leave_call()

    def _leave_call(self) -> bool:
        self._given_back = ""
        self._scanner = None
        return self._go(self._in_text)

    def _fail(self) -> bool:
        """Returns the beginning of text that is not a call, and reads the rest as text."""
        self._say(self._given_back)
        return self._leave_call()

    def _open(self, given_back: str, rest: str) -> None:
        self._given_back = given_back
        self._text = rest
        self._state = self._call

    def _give_back_from(self, rest: str) -> None:
        self._given_back += self._text[: len(self._text) - len(rest)]
        self._text = rest

    def _say(self, text: str) -> None:
        if text:
            self._out.append(TextDelta(text))
