"""Grammars of calls: what an answer is when a tool must be called, or a strict one may be."""

import json
from collections.abc import Callable, Sequence
from typing import Any, Final

from tapeline.grammar import LarkGrammar
from tapeline.text import Tokenizer
from tapeline.toolcalls import _harmony_parser as harmony
from tapeline.toolcalls._tools import Tool

_ANY: Final = {"type": "object"}
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
    """

    def __init__(self, tokenizer: Tokenizer, tools: Sequence[Tool], demanded: bool) -> None:
        self._tokenizer: Final = tokenizer
        self._tools: Final = tools
        self._demanded: Final = demanded
        self._rules: Final = list[str]()

    def mark(self, text: str) -> str:
        """Returns a mark as a term: its token where it is one, else its text."""
        token_id = self._tokenizer.added_id(text)
        return quoted(text) if token_id is None else f"<[{token_id}]>"

    def calls(self, write: Callable[[str, str], str]) -> str:
        """Returns a term for one call of any tool.

        Args:
            write: takes a tool's name and the term of its arguments, and returns the call's terms.
        """
        names = [f"call_{index}" for index in range(len(self._tools))]
        for index, (rule, tool) in enumerate(zip(names, self._tools, strict=True)):
            self.rule(rule, write(tool.name, f"@{_schema_name(tool)}_{index}"))
        self.rule("a_call", " | ".join(names))
        return "a_call"

    def objects(self, arguments: str) -> str:
        """Returns a term for one call that is an object.

        Args:
            arguments: key of the arguments.
        """
        head = '{{"name": "{}", "{}": '
        return self.calls(lambda name, term: f'{quoted(head.format(name, arguments))} {term} "}}"')

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
        """Returns the grammar whose answers are a term."""
        schemas = {f"{_schema_name(tool)}_{index}": self._schema(tool) for index, tool in enumerate(self._tools)}
        return LarkGrammar("\n".join([f"start: {start}", *self._rules]), schemas, ends=True)

    def _schema(self, tool: Tool) -> Any:
        held = tool.strict is True or (tool.strict is None and self._demanded)
        return tool.parameters if held else _ANY


def _schema_name(tool: Tool) -> str:
    """Returns the name of a tool's schema, which messages show, in the characters that a grammar allows."""
    return "".join(letter if letter.isalnum() else "_" for letter in tool.name)


def hermes(calls: CallGrammar, demanded: bool, parallel: bool) -> LarkGrammar:
    """Returns the grammar of calls between ``<tool_call>`` and ``</tool_call>``."""
    opening = calls.mark("<tool_call>")
    calls.rule("block", f'{opening} "\\n" {calls.objects("arguments")} "\\n" {calls.mark("</tool_call>")}')
    several = 'block ("\\n" block)*' if parallel else "block"
    if demanded:
        return calls.grammar(several)
    return calls.grammar(f"{calls.texts('<tool_call>', '</tool_call>')} ({several})?")


def llama(calls: CallGrammar, demanded: bool, parallel: bool) -> LarkGrammar:
    """Returns the grammar of one call that is all of an answer."""
    call = calls.objects("parameters")
    if demanded:
        return calls.grammar(call)
    calls.rule("other", f"/[^{{\\s]/ {calls.texts()}")
    return calls.grammar(f"({call} | other)?")


def mistral(calls: CallGrammar, demanded: bool, parallel: bool) -> LarkGrammar:
    """Returns the grammar of a list of calls after ``[TOOL_CALLS]``."""
    call = calls.objects("arguments")
    several = f"({quoted(', ')} {call})*" if parallel else ""
    block = f'{calls.mark("[TOOL_CALLS]")} " "? "[" {call} {several} "]"'
    return calls.grammar(block if demanded else f"{calls.texts('[TOOL_CALLS]')} ({block})?")


def mistral_names(calls: CallGrammar, demanded: bool, parallel: bool) -> LarkGrammar:
    """Returns the grammar of ``[TOOL_CALLS]name[ARGS]{...}``."""
    opening, arguments = calls.mark("[TOOL_CALLS]"), calls.mark("[ARGS]")
    block = (
        f"({calls.calls(lambda name, term: f'{opening} {quoted(name)} {arguments} {term}')}){'+' if parallel else ''}"
    )
    return calls.grammar(block if demanded else f"{calls.texts('[TOOL_CALLS]', '[ARGS]')} ({block})?")


def gpt_oss(calls: CallGrammar, demanded: bool, parallel: bool) -> LarkGrammar:
    """Returns the grammar of messages in channels, the last of which is a call or, where the model is free, final."""
    channel, message = calls.mark(harmony.CHANNEL), calls.mark(harmony.MESSAGE)
    next_message = f"{calls.mark(harmony.END)} {calls.mark(harmony.START)} {quoted('assistant')}"
    free = calls.texts(*harmony.MARKS)
    calls.rule("note", f'{channel} ("analysis" | "commentary") {message} {free} {next_message}')
    call = calls.calls(
        lambda name, term: (
            f"{channel} {quoted(f'commentary to=functions.{name} ')} {calls.mark(harmony.CONSTRAIN)} "
            f"{quoted('json')} {message} {term}"
        )
    )
    last = call if demanded else f'({call} | {channel} "final" {message} {free})'
    return calls.grammar(f"note* {last}")
