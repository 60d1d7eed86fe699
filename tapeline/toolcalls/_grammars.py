"""Grammars of calls: form of an answer if a tool must be called, or a strict one may be."""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tapeline.grammar import Choices, JsonObject, JsonSchema, LarkGrammar, RegularExpression
from tapeline.text import Tokenizer
from tapeline.toolcalls import _harmony_parser as harmony
from tapeline.toolcalls._tools import Tool, resolved

AnswerForm = JsonSchema | JsonObject | Choices | RegularExpression
"""Formats that go with tools."""

_ANY: Final = {"type": "object"}
_ELEMENT: Final = re.compile(r"(</?[\w:]+>)")
_RAW: Final = r"/([^<]|<[^\/<])*/"  # text without an end tag
_TEXT: Final = "TEXT: /(?s:.)+/"


def quoted(text: str) -> str:
    """Returns a text as a literal of a grammar."""
    return json.dumps(text, ensure_ascii=False)


class CallGrammar:
    """Rules of the calls of some tools, from which a family makes its grammar.

    Args:
        tokenizer: of the model, for marks that are tokens.
        tools: that may be called.
        demanded: whether one of them must be called; otherwise the model is free, and strict tools alone are held to
            their schemas.
        form: format of an answer without a call; None for free text.
    """

    def __init__(
        self, tokenizer: Tokenizer, tools: Sequence[Tool], demanded: bool, form: AnswerForm | None = None
    ) -> None:
        self._tokenizer: Final = tokenizer
        self._form: Final = form
        self._schemas: Final[dict[str, Any]] = {}
        self._tools: Final = tools
        self._demanded: Final = demanded
        self._rules: Final = list[str]()

    def mark(self, text: str) -> str:
        """Returns a mark as a term: its token if it is one, else its text."""
        token_id = self._tokenizer.added_id(text)
        return quoted(text) if token_id is None else f"<[{token_id}]>"

    def calls(self, write: Callable[[str, str], str]) -> str:
        """Returns a term for one call of any tool.

        Args:
            write: takes a tool's name and the term of its arguments, and returns the call's terms.
        """
        names = [f"call_{index}" for index in range(len(self._tools))]
        for index, (rule, tool) in enumerate(zip(names, self._tools, strict=True)):
            self.rule(rule, write(tool.name, f"@{schema_name(tool)}_{index}"))
        self.rule("a_call", " | ".join(names))
        return "a_call"

    def objects(self, arguments: str) -> str:
        """Returns a term for one call that is an object.

        Args:
            arguments: key of the arguments.
        """
        head = '{{"name": "{}", "{}": '
        return self.calls(lambda name, term: f'{quoted(head.format(name, arguments))} {term} "}}"')

    def text(self, text: str) -> str:
        """Returns terms for a text, in which marks that are tokens stand as such."""
        pieces = [piece for piece in _ELEMENT.split(text) if piece]
        return " ".join(map(self.mark, pieces)) or '""'

    def parameters(self) -> Iterator[tuple[int, Tool, bool]]:
        """Yields the tools with their numbers, and whether arguments must satisfy the schemas."""
        for index, tool in enumerate(self._tools):
            yield index, tool, self._is_held(tool)

    def schema(self, name: str, schema: Any) -> str:
        """Returns a term for JSON that a schema allows."""
        self._schemas[name] = schema
        return f"@{name}"

    def answer(self, calls: str, *marks: str) -> LarkGrammar:
        """Returns the grammar of an answer: calls if one is demanded, else text or the format, or calls.

        Args:
            calls: term of one call or several.
            *marks: added tokens that are not text.
        """
        if self._demanded:
            return self.grammar(calls)
        if self._form is not None:
            return self.grammar(f"({self.content()} | {calls})")
        return self.grammar(f"{self.texts(*marks)} ({calls})?")

    @property
    def has_form(self) -> bool:
        """True if an answer without a call has a format."""
        return self._form is not None

    def content(self, *marks: str) -> str:
        """Returns a term for the answer: the format, or free text without some added tokens."""
        match self._form:
            case None:
                return self.texts(*marks)
            case JsonSchema(schema):
                return self.schema("response_format", schema)
            case JsonObject():
                return self.schema("response_format", {"type": "object"})
            case Choices(texts):
                self.rule("said", " | ".join(map(quoted, texts)))
                return "said"
            case RegularExpression(pattern):
                escaped = re.sub(r"(?<!\\)((?:\\\\)*)/", r"\1\/", pattern)
                self._rules.append(f"SAID: /{escaped}/")
                return "SAID"

    def rule(self, name: str, terms: str) -> None:
        """Adds a rule."""
        self._rules.append(f"{name}: {terms}")

    def texts(self, *marks: str) -> str:
        """Returns a term for free text: all but special tokens; tokens that are added but not special are text.

        Args:
            *marks: added tokens that are not text.
        """
        self._rules.append(_TEXT)
        without = {self._tokenizer.added_id(mark) for mark in marks}
        others = sorted(self._tokenizer.text_ids() - {index for index in without if index is not None})
        others_term = f" | <[{','.join(map(str, others))}]>" if others else ""
        self.rule("free", f"(TEXT{others_term})*")
        return "free"

    def grammar(self, start: str) -> LarkGrammar:
        """Returns the grammar of answers of one term."""
        used = re.findall(r"@(\w+)", "\n".join([start, *self._rules]))
        named = {f"{schema_name(tool)}_{index}": self._schema(tool) for index, tool in enumerate(self._tools)}
        schemas = {name: schema for name, schema in named.items() if name in used}
        return LarkGrammar("\n".join([f"start: {start}", *self._rules]), {**schemas, **self._schemas}, ends=True)

    def _schema(self, tool: Tool) -> Any:
        return tool.parameters if self._is_held(tool) else _ANY

    def _is_held(self, tool: Tool) -> bool:
        return tool.strict is True or (tool.strict is None and self._demanded)


def schema_name(tool: Tool) -> str:
    """Returns the name of a tool's schema, which messages show, in the characters that a grammar allows."""
    return "".join(letter if letter.isalnum() else "_" for letter in tool.name)


def hermes(calls: CallGrammar, demanded: bool, parallel: bool) -> LarkGrammar:
    """Returns the grammar of calls between ``<tool_call>`` and ``</tool_call>``."""
    opening = calls.mark("<tool_call>")
    calls.rule("block", f'{opening} "\\n" {calls.objects("arguments")} "\\n" {calls.mark("</tool_call>")}')
    several = 'block ("\\n" block)*' if parallel else "block"
    return calls.answer(several, "<tool_call>", "</tool_call>")


def llama(calls: CallGrammar, demanded: bool, parallel: bool) -> LarkGrammar:
    """Returns the grammar of one call that is all of an answer."""
    call = calls.objects("parameters")
    if demanded or calls.has_form:
        return calls.answer(call)
    calls.rule("other", f"/[^{{\\s]/ {calls.texts()}")
    return calls.grammar(f"({call} | other)?")


def mistral(calls: CallGrammar, demanded: bool, parallel: bool) -> LarkGrammar:
    """Returns the grammar of a list of calls after ``[TOOL_CALLS]``."""
    call = calls.objects("arguments")
    several = f"({quoted(', ')} {call})*" if parallel else ""
    block = f'{calls.mark("[TOOL_CALLS]")} " "? "[" {call} {several} "]"'
    return calls.answer(block, "[TOOL_CALLS]")


def mistral_names(calls: CallGrammar, demanded: bool, parallel: bool) -> LarkGrammar:
    """Returns the grammar of ``[TOOL_CALLS]name[ARGS]{...}``."""
    opening, arguments = calls.mark("[TOOL_CALLS]"), calls.mark("[ARGS]")
    block = (
        f"({calls.calls(lambda name, term: f'{opening} {quoted(name)} {arguments} {term}')}){'+' if parallel else ''}"
    )
    return calls.answer(block, "[TOOL_CALLS]", "[ARGS]")


def gpt_oss(calls: CallGrammar, demanded: bool, parallel: bool) -> LarkGrammar:
    """Returns the grammar of messages in channels, the last of which is a call or, if the model is free, final."""
    channel, message = calls.mark(harmony.CHANNEL), calls.mark(harmony.MESSAGE)
    next_message = f"{calls.mark(harmony.END)} {calls.mark(harmony.START)} {quoted('assistant')}"
    free = calls.texts(*harmony.MARKS)
    notes = '"analysis"' if calls.has_form else '("analysis" | "commentary")'  # a commentary is said, too
    calls.rule("note", f"{channel} {notes} {message} {free} {next_message}")
    call = calls.calls(
        lambda name, term: (
            f"{channel} {quoted(f'commentary to=functions.{name} ')} {calls.mark(harmony.CONSTRAIN)} "
            f"{quoted('json')} {message} {term}"
        )
    )
    said = calls.content(*harmony.MARKS) if calls.has_form else free
    last = call if demanded else f'({call} | {channel} "final" {message} {said})'
    return calls.grammar(f"note* {last}")


def granite(calls: CallGrammar, demanded: bool, parallel: bool) -> LarkGrammar:
    """Returns the grammar of a list of calls after ``<|tool_call|>``."""
    call = calls.objects("arguments")
    several = f"({quoted(', ')} {call})*" if parallel else ""
    return calls.answer(f'{calls.mark("<|tool_call|>")} "[" {call} {several} "]"', "<|tool_call|>")


def kimi(calls: CallGrammar, demanded: bool, parallel: bool) -> LarkGrammar:
    """Returns the grammar of a section of calls of Kimi-K2."""
    begin, end = calls.mark("<|tool_call_begin|>"), calls.mark("<|tool_call_end|>")
    arguments = calls.mark("<|tool_call_argument_begin|>")
    call = calls.calls(lambda name, term: f"{begin} {quoted(f'functions.{name}:')} NUMBER {arguments} {term} {end}")
    calls.rule("NUMBER", "/[0-9]{1,3}/")
    opening, closing = calls.mark("<|tool_calls_section_begin|>"), calls.mark("<|tool_calls_section_end|>")
    return calls.answer(f"{opening} ({call}){'+' if parallel else ''} {closing}")


def deepseek(calls: CallGrammar, demanded: bool, parallel: bool) -> LarkGrammar:
    """Returns the grammar of calls as DeepSeek V3.1 writes them."""
    begin, end = (
        calls.mark("<\uff5ctool\u2581call\u2581begin\uff5c>"),
        calls.mark("<\uff5ctool\u2581call\u2581end\uff5c>"),
    )
    separator = calls.mark("<\uff5ctool\u2581sep\uff5c>")
    call = calls.calls(lambda name, term: f"{begin} {quoted(name)} {separator} {term} {end}")
    opening, closing = (
        calls.mark("<\uff5ctool\u2581calls\u2581begin\uff5c>"),
        calls.mark("<\uff5ctool\u2581calls\u2581end\uff5c>"),
    )
    return calls.answer(f"{opening} ({call}){'+' if parallel else ''} {closing}")


def deepseek_fenced(calls: CallGrammar, demanded: bool, parallel: bool) -> LarkGrammar:
    """Returns the grammar of calls as DeepSeek V3 and R1 write them, with the arguments in a fence."""
    begin, end = (
        calls.mark("<\uff5ctool\u2581call\u2581begin\uff5c>"),
        calls.mark("<\uff5ctool\u2581call\u2581end\uff5c>"),
    )
    separator, fence_open, fence = calls.mark("<\uff5ctool\u2581sep\uff5c>"), "\n```json\n", quoted("\n```")
    call = calls.calls(
        lambda name, term: f'{begin} "function" {separator} {quoted(name + fence_open)} {term} {fence} {end}'
    )
    opening, closing = (
        calls.mark("<\uff5ctool\u2581calls\u2581begin\uff5c>"),
        calls.mark("<\uff5ctool\u2581calls\u2581end\uff5c>"),
    )
    return calls.answer(f"{opening} {call} {f'({quoted(chr(10))} {call})*' if parallel else ''} {closing}")


def lfm2(calls: CallGrammar, demanded: bool, parallel: bool) -> LarkGrammar:
    """Returns the grammar of a list of calls such as ``[f(a="x", b=1)]``; values are JSON."""
    names: list[str] = []
    for index, tool, held in calls.parameters():
        calls.rule(
            f"call_{index}", f"{quoted(f'{tool.name}(')} {_keywords(calls, index, tool.parameters, held)} {quoted(')')}"
        )
        names.append(f"call_{index}")
    calls.rule("a_call", " | ".join(names))
    several = f"({quoted(', ')} a_call)*" if parallel else ""
    opening, closing = calls.mark("<|tool_call_start|>"), calls.mark("<|tool_call_end|>")
    return calls.answer(f'{opening} "[" a_call {several} "]" {closing}', "<|tool_call_start|>", "<|tool_call_end|>")


def _keywords(calls: CallGrammar, index: int, schema: Any, held: bool) -> str:
    """Returns a term for the arguments of a call, in the order of its schema; optional ones may be missing."""
    properties, shared = (
        schema.get("properties"),
        {key: schema[key] for key in ("$defs", "definitions") if key in schema},
    )
    if not isinstance(properties, Mapping):
        if schema.get("additionalProperties") is False:
            return '""'
        value = calls.schema(f"any_value_{index}", {})
        calls.rule(f"ANY_KEY_{index}", "/[A-Za-z_][A-Za-z0-9_]{0,63}/")
        calls.rule(f"any_{index}", f'ANY_KEY_{index} "=" {value}')
        return f"(any_{index} ({quoted(', ')} any_{index})*)?"
    needed = schema.get("required") or ()
    terms: list[tuple[str, bool]] = []
    for number, (key, part) in enumerate(properties.items()):
        value = {**shared, **part} if isinstance(part, Mapping) and held else part if held else {}
        name = f"argument_{index}_{number}"
        calls.rule(name, f"{quoted(f'{key}=')} {calls.schema(name, value)}")
        terms.append((name, key in needed))
    return _joined_terms(terms)


def _joined_terms(terms: Sequence[tuple[str, bool]]) -> str:
    """Returns a term for some terms in order with commas between them; those that are not needed may be missing."""
    comma = quoted(", ")
    firsts: list[str] = []
    for place, (name, needed) in enumerate(terms):
        rest = [f"({comma} {other})" if must else f"({comma} {other})?" for other, must in terms[place + 1 :]]
        firsts.append(" ".join([name, *rest]))
        if needed:
            return f"({' | '.join(firsts)})"
    return f"({' | '.join(firsts)})?" if firsts else '""'


@dataclass(frozen=True, slots=True)
class Elements:
    """Texts of calls with arguments as elements.

    Attributes:
        opening: before a section or a call.
        head: before the arguments; ``{}`` is the tool's name.
        before: before an argument's value; ``{}`` is its key.
        after: after an argument's value.
        tail: after the arguments.
        closing: after a section or a call.
    """

    opening: str
    head: str
    before: str
    after: str
    tail: str
    closing: str


QWEN_CODER: Final = Elements(
    "<tool_call>", "\n<function={}>\n", "<parameter={}>\n", "\n</parameter>\n", "</function>\n", "</tool_call>"
)
SEED: Final = Elements(
    "<seed:tool_call>", "\n<function={}>\n", "<parameter={}>", "</parameter>\n", "</function>\n", "</seed:tool_call>"
)
GLM: Final = Elements("<tool_call>", "{}\n", "<arg_key>{}</arg_key>\n<arg_value>", "</arg_value>\n", "", "</tool_call>")
MINIMAX: Final = Elements(
    "<minimax:tool_call>",
    '\n<invoke name="{}">\n',
    '<parameter name="{}">',
    "</parameter>\n",
    "</invoke>\n",
    "</minimax:tool_call>",
)


def elements(form: Elements) -> Callable[[CallGrammar, bool, bool], LarkGrammar]:
    """Returns the maker of the grammar of calls with arguments as elements."""

    def grammar(calls: CallGrammar, demanded: bool, parallel: bool) -> LarkGrammar:
        opening, closing = calls.mark(form.opening), calls.mark(form.closing)
        names: list[str] = []
        for index, tool, held in calls.parameters():
            arguments = list(_arguments(calls, form, index, tool.parameters, held))
            tail = [calls.text(form.tail)] if form.tail else []
            calls.rule(f"call_{index}", " ".join([calls.text(form.head.format(tool.name)), *arguments, *tail]))
            names.append(f"call_{index}")
        calls.rule("block", f"{opening} ({' | '.join(names)}) {closing}")
        return calls.answer('block ("\\n" block)*' if parallel else "block", form.opening, form.closing)

    return grammar


def _arguments(calls: CallGrammar, form: Elements, index: int, schema: Any, held: bool) -> Iterator[str]:
    """Yields the terms of a tool's arguments, in the order of its schema; optional ones may be missing."""
    properties = schema.get("properties")
    shared = {key: schema[key] for key in ("$defs", "definitions") if key in schema}
    needed = schema.get("required") or ()
    for number, (key, part) in enumerate((properties if isinstance(properties, Mapping) else {}).items()):
        name = f"argument_{index}_{number}"
        value = _text_value(calls, name, resolved(part, schema) if held else {"type": "string"})
        if value is None:
            value = calls.schema(name, {**shared, **part} if isinstance(part, Mapping) else part)
        calls.rule(name, f"{calls.text(form.before.format(key))} {value} {calls.text(form.after)}")
        yield name if key in needed else f"{name}?"
    if not isinstance(properties, Mapping) and schema.get("additionalProperties") is not False:
        before, _, between = form.before.partition("{}")
        key, text = f"ANY_KEY_{index}", f"ANY_TEXT_{index}"
        value = f"{calls.text(before)} {key} {calls.text(between)} {text} {calls.text(form.after)}"
        calls.rule(f"any_{index}", value)
        calls.rule(key, "/[A-Za-z_][A-Za-z0-9_]{0,63}/")
        calls.rule(text, _RAW)
        yield f"any_{index}*"


def _text_value(calls: CallGrammar, name: str, part: Any) -> str | None:
    """Returns a term for an argument that is text, which stands without quotes; None for one that is JSON."""
    if not isinstance(part, Mapping):
        return None
    texts = part.get("enum", [part["const"]] if "const" in part else None)
    if isinstance(texts, list) and texts and all(isinstance(text, str) and text for text in texts):
        return f"({' | '.join(map(quoted, texts))})"
    if part.get("type") != "string":
        return None
    least, most = part.get("minLength", 0), part.get("maxLength")
    if least or most is not None:
        calls.rule(f"TEXT_{name.upper()}", f"/[^<]{{{least},{'' if most is None else most}}}/")
    else:
        calls.rule(f"TEXT_{name.upper()}", _RAW)
    return f"TEXT_{name.upper()}"
