"""Calls in blocks: XML (Qwen3-Coder, GLM, MiniMax, Seed-OSS), Python (LFM2), marked JSON (Kimi, DeepSeek).

A call is returned when its block has ended: its contents are known only then.
"""

import ast
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from lang_core import json_value
from tapeline.toolcalls._deltas import TextDelta
from tapeline.toolcalls._parser import NewId, ToolNames
from tapeline.toolcalls._scan import arguments_of, first_mark, held_length
from tapeline.toolcalls._state_parser import State, StateParser
from tapeline.toolcalls._tools import resolved

_NAME: Final = r"[\w.-]{1,64}"
_LONGEST_PYTHON: Final = 1 << 16  # characters of calls that are read as Python
_WORDS: Final[Mapping[str, Any]] = {"True": True, "False": False, "None": None}

_LIST: Final = re.compile(r"\s*\[\s*")
_HEAD: Final = re.compile(rf"(?P<name>{_NAME})\(\s*")
_KEY: Final = re.compile(r"(?P<key>[^=\s][^=]{0,199}?)\s*=\s*")
_COMMA: Final = re.compile(r"\s*,\s*")

Call = tuple[str, str]
"""Name of a tool, and JSON text of its arguments."""
ReadBlock = Callable[[str, ToolNames], list[Call] | None]
"""Reads the calls of a block's text; returns None if it has none that is whole."""


@dataclass(frozen=True, slots=True)
class BlockMarks:
    """Marks of a family's calls.

    Attributes:
        opens: marks that begin a section of calls.
        heads: texts that begin a call without a section; they belong to the call.
        begins: marks before a call in a section, which say nothing.
        end: mark after a call.
        closes: marks after the last call of a section.
        read: reads the calls of a block.
        inner: further marks inside a call that may be tokens.
    """

    opens: tuple[str, ...]
    end: str
    read: ReadBlock
    heads: tuple[str, ...] = ()
    begins: tuple[str, ...] = ()
    closes: tuple[str, ...] = ()

    inner: tuple[str, ...] = ()

    @property
    def tokens(self) -> tuple[str, ...]:
        """Marks that may be tokens of the tokenizer."""
        end = () if self.heads else (self.end,)
        return tuple(dict.fromkeys((*self.opens, *self.begins, *end, *self.closes, *self.inner)))


class BlockCallParser(StateParser):
    """Parser of answers with calls in blocks.

    Args:
        marks: of the family.
        tools: parameters of the tools by name, or their names.
        new_id: makes names of calls.
        streamed: ignored: calls are returned when they are complete.
    """

    def __init__(self, marks: BlockMarks, tools: ToolNames, new_id: NewId, streamed: bool) -> None:
        self._marks: Final = marks
        self._given_back = ""  # marks before the call being read, should it be none
        self._searched = 0  # characters of the text that have no end mark
        super().__init__(tools, new_id, streamed)

    def _first(self) -> State:
        return self._in_text

    def _in_text(self, final: bool) -> bool:
        """Text, until a mark comes; spaces before one are not given."""
        starts = (*self._marks.opens, *self._marks.heads)
        mark = first_mark(self._text, starts)
        if mark:
            place, name = mark
            before = self._text[:place]
            shown = before.rstrip()
            self._say(shown)
            kept = name if name in self._marks.opens else ""
            self._given_back = before[len(shown) :] + kept
            self._text = self._text[place + len(kept) :]
            self._searched = 0
            return self._go(self._before_call)
        held = held_length(self._text, starts) if self._cut or not final else 0
        settled = self._text[: len(self._text) - held]
        shown = settled if final else settled.rstrip()
        self._say(shown)
        self._text = "" if final else self._text[len(shown) :]
        return False

    def _before_call(self, final: bool) -> bool:
        """Spaces, and marks before a call."""
        rest = self._text.lstrip()
        begin = next((mark for mark in self._marks.begins if rest.startswith(mark)), None)
        if begin is not None:
            self._give_back(rest[len(begin) :])
            return True
        if not final and any(mark.startswith(rest) for mark in self._marks.begins):
            return False
        self._give_back(rest)
        return self._go(self._in_call)

    def _in_call(self, final: bool) -> bool:
        """A call, up to its end mark."""
        end = self._text.find(self._marks.end, max(0, self._searched - len(self._marks.end)))
        if end < 0:
            self._searched = len(self._text)
            if not final:
                return False
            return self._drop() if self._cut else self._fail()
        calls = self._marks.read(self._text[:end], self._tools)
        if calls is None:
            return self._fail()
        for name, arguments in calls:
            self._out += [self._writer.begin(name), self._writer.more(arguments)]
        self._text = self._text[end + len(self._marks.end) :]
        self._given_back = ""
        return self._go(self._after_call)

    def _after_call(self, final: bool) -> bool:
        """Marks after a call; spaces there are nobody's."""
        self._text = self._text.lstrip()
        for mark in self._marks.closes:
            if self._text.startswith(mark):
                self._text = self._text[len(mark) :]
                return True
        again = (*self._marks.begins, *self._marks.heads)
        if any(self._text.startswith(mark) for mark in again):
            self._searched = 0
            return self._go(self._before_call)
        if not final and any(mark.startswith(self._text) for mark in (*self._marks.closes, *again)):
            return False
        return self._go(self._in_text)

    def _fail(self) -> bool:
        """Returns marks that do not begin a call, with the first character, and reads the rest as text."""
        self._say(self._given_back + self._text[:1])
        self._text = self._text[1:]
        self._given_back = ""
        return self._go(self._in_text)

    def _drop(self) -> bool:
        """Drops a call that was cut off before anything of it is known to be right."""
        self._text = self._given_back = ""
        return self._go(self._in_text)

    def _give_back(self, rest: str) -> None:
        self._given_back += self._text[: len(self._text) - len(rest)]
        self._text = rest

    def _say(self, text: str) -> None:
        if text:
            self._out.append(TextDelta(text))


def xml_reader(head: str, parameter: str) -> ReadBlock:
    """Returns a reader of calls with arguments as elements.

    Args:
        head: expression of the text before the arguments, with the group ``name``.
        parameter: expression of one argument, with the groups ``key`` and ``value``.
    """
    heads, parameters = re.compile(head), re.compile(parameter, re.DOTALL)

    def read(text: str, tools: ToolNames) -> list[Call] | None:
        begun = heads.match(text)
        if begun is None or begun["name"] not in tools:
            return None
        arguments: dict[str, Any] = {}
        place = begun.end()
        while text[place:].strip():
            argument = parameters.match(text, place)
            if argument is None:
                return None
            arguments[argument["key"]] = _value(argument["value"], _schema(tools, begun["name"], argument["key"]))
            place = argument.end()
        return [(begun["name"], json.dumps(arguments, ensure_ascii=False))]

    return read


def _schema(tools: ToolNames, name: str, key: str) -> Any:
    """Returns the schema of an argument; None if the tool does not say."""
    parameters = tools[name] if isinstance(tools, Mapping) else {}
    properties = parameters.get("properties") if isinstance(parameters, Mapping) else None
    return resolved(properties.get(key), parameters) if isinstance(properties, Mapping) else None


def _value(text: str, schema: Any) -> Any:
    """Returns an argument that is written without quotes: text if the tool says so, else JSON if it is that."""
    kinds = _kinds(schema)
    if kinds == {"string"}:
        return text
    try:
        value = _WORDS[text.strip()] if text.strip() in _WORDS else json_value(text.strip())
    except ValueError:
        return text
    return text if "string" in kinds and not _is_of(value, kinds) else value


def _kinds(schema: Any) -> set[str]:
    """Returns the types that a schema names; empty if it names none."""
    if not isinstance(schema, Mapping):
        return set()
    kinds = schema.get("type", [])
    named = {kinds} if isinstance(kinds, str) else {str(kind) for kind in kinds}
    values = schema.get("enum")
    if not named and isinstance(values, list) and all(isinstance(value, str) for value in values):
        return {"string"}
    for keyword in ("anyOf", "oneOf"):
        parts = schema.get(keyword)
        for part in parts if isinstance(parts, list) else ():
            named |= _kinds(part)
    return named


def _is_of(value: Any, kinds: set[str]) -> bool:
    if value is None or isinstance(value, bool):
        return ("null" if value is None else "boolean") in kinds
    if isinstance(value, int | float):
        return "number" in kinds or ("integer" in kinds and float(value).is_integer())
    return ("array" if isinstance(value, list) else "object" if isinstance(value, dict) else "string") in kinds


def json_reader(head: str, tail: str = "") -> ReadBlock:
    """Returns a reader of calls with arguments as a JSON object.

    Args:
        head: expression of the text before the arguments, with the group ``name``.
        tail: expression of the text after them.
    """
    whole = re.compile(rf"{head}\s*(?P<arguments>\{{.*\}}){tail}\s*", re.DOTALL)

    def read(text: str, tools: ToolNames) -> list[Call] | None:
        call = whole.fullmatch(text)
        if call is None or call["name"] not in tools:
            return None
        arguments = arguments_of(call["arguments"].strip())
        return None if arguments is None else [(call["name"], arguments)]

    return read


def python_calls(text: str, tools: ToolNames) -> list[Call] | None:
    """Returns the calls of a Python list such as ``[f(a="x"), g()]``; values may also be JSON, as of grammars."""
    if len(text) > _LONGEST_PYTHON:
        return None
    written = _json_calls(text)
    if written is not None:
        return written if written and all(name in tools for name, _ in written) else None
    try:
        tree = ast.parse(text.strip(), mode="eval").body
        nodes: Sequence[ast.expr] = tree.elts if isinstance(tree, ast.List) else [tree]
        calls = [_python_call(node) for node in nodes]
    except (SyntaxError, ValueError, RecursionError, MemoryError, TypeError):
        return None
    known = [call for call in calls if call is not None and call[0] in tools]
    return known if known and len(known) == len(calls) else None


def _json_calls(text: str) -> list[Call] | None:
    """Returns the calls of a list whose values are JSON; None if the text is something else."""
    calls: list[Call] = []
    at, end = 0, len(text.rstrip())
    opening = _LIST.match(text)
    if opening is not None:
        at, end = opening.end(), end - 1
        if text[end : end + 1] != "]":
            return None
    while head := _HEAD.match(text, at):
        at, arguments = head.end(), dict[str, Any]()
        while text[at : at + 1] != ")":
            key = _KEY.match(text, at)
            if key is None:
                return None
            try:
                arguments[key["key"]], at = _JSON.raw_decode(text, key.end())
            except (ValueError, RecursionError):
                return None
            comma = _COMMA.match(text, at)
            if comma is None and text[at : at + 1] != ")":
                return None
            at = at if comma is None else comma.end()
        calls.append((head["name"], json.dumps(arguments, ensure_ascii=False)))
        at += 1
        comma = _COMMA.match(text, at)
        if comma is None:
            break
        at = comma.end()
    return calls if not text[at:end].strip() else None


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


_JSON: Final = json.JSONDecoder(parse_constant=_refuse_constant)


def _python_call(node: ast.expr) -> Call | None:
    if not isinstance(node, ast.Call) or node.args:
        return None
    arguments = {keyword.arg: ast.literal_eval(keyword.value) for keyword in node.keywords if keyword.arg is not None}
    if len(arguments) != len(node.keywords):
        return None
    return ast.unparse(node.func), json.dumps(arguments, ensure_ascii=False, allow_nan=False)


_FUNCTION: Final = xml_reader(
    rf"\s*<function=(?P<name>{_NAME})>\s*",
    r"\s*<parameter=(?P<key>[^>\n]{1,200})>\n?(?P<value>.*?)\n?(?:</parameter>|(?=\n?<parameter=)|\s*\Z)",
)

QWEN_CODER: Final = BlockMarks(
    opens=("<tool_call>",), heads=("<function=",), end="</function>", closes=("</tool_call>",), read=_FUNCTION
)
SEED: Final = BlockMarks(
    opens=("<seed:tool_call>",), heads=("<function=",), end="</function>", closes=("</seed:tool_call>",), read=_FUNCTION
)
GLM: Final = BlockMarks(
    opens=("<tool_call>",),
    end="</tool_call>",
    inner=("<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"),
    read=xml_reader(
        rf"\s*(?P<name>{_NAME})\s*(?=<arg_key>|\Z)",
        r"\s*<arg_key>\s*(?P<key>[^<\n]{1,200}?)\s*</arg_key>\s*<arg_value>(?P<value>.*?)</arg_value>",
    ),
)
MINIMAX: Final = BlockMarks(
    opens=("<minimax:tool_call>",),
    begins=(),
    heads=("<invoke ",),
    end="</invoke>",
    closes=("</minimax:tool_call>",),
    read=xml_reader(
        rf'\s*<invoke name="?(?P<name>{_NAME})"?>\s*',
        r'\s*<parameter name="?(?P<key>[^">\n]{1,200})"?>(?P<value>.*?)</parameter>',
    ),
)
KIMI: Final = BlockMarks(
    opens=("<|tool_calls_section_begin|>",),
    begins=("<|tool_call_begin|>",),
    end="<|tool_call_end|>",
    closes=("<|tool_calls_section_end|>",),
    inner=("<|tool_call_argument_begin|>",),
    read=json_reader(rf"\s*(?:functions\.)?(?P<name>{_NAME}?)(?::\d+)?\s*<\|tool_call_argument_begin\|>"),
)
DEEPSEEK: Final = BlockMarks(
    opens=("<\uff5ctool\u2581calls\u2581begin\uff5c>",),
    begins=("<\uff5ctool\u2581call\u2581begin\uff5c>",),
    end="<\uff5ctool\u2581call\u2581end\uff5c>",
    closes=("<\uff5ctool\u2581calls\u2581end\uff5c>",),
    inner=("<\uff5ctool\u2581sep\uff5c>",),
    read=json_reader(
        rf"\s*(?:function<\uff5ctool\u2581sep\uff5c>)?(?P<name>{_NAME})(?:<\uff5ctool\u2581sep\uff5c>|\s*\n)(?:```json)?",
        r"\s*(?:```)?",
    ),
)
LFM2: Final = BlockMarks(opens=("<|tool_call_start|>",), end="<|tool_call_end|>", read=python_calls)
