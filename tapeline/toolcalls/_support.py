"""Tools with one model: what of a request goes into the prompt, the grammar and the parser."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from lang_core import InputError, checked_choices
from tapeline.grammar import GrammarSpec
from tapeline.text import ChatTemplate, Tokenizer
from tapeline.toolcalls._formats import CallFormat, find_format
from tapeline.toolcalls._grammars import CallGrammar
from tapeline.toolcalls._parser import AnswerParser, NewId, PlainParser
from tapeline.toolcalls._tools import Tool, read_choice, read_tools

_PROBE: Final = "tapeline_probe_of_tools"


@checked_choices
@dataclass(frozen=True, slots=True)
class ToolPlan:
    """Consequences of a request's tools for its answer.

    Attributes:
        tools: what the template gets as ``tools``; None where it gets none.
        grammar: constraint of the answer; None where it is free.
        keep: special tokens that the answer's text must show to the parser (``Tokenizer.stream(keep=...)``).
        ends: ids that end the answer, beside those of the model.
        names: names of the tools that may be called.
        streamed: whether arguments come in pieces: where a grammar makes the answer a call.
    """

    tools: tuple[Mapping[str, Any], ...] | None
    grammar: GrammarSpec | None
    keep: frozenset[str]
    ends: frozenset[int]
    names: frozenset[str]
    streamed: bool
    _format: CallFormat | None

    @property
    def parses(self) -> bool:
        """True if answers may have parts that are no text, such as calls."""
        return self._format is not None

    def new_parser(self, new_id: NewId | None = None) -> AnswerParser:
        """Returns a parser for one answer.

        Args:
            new_id: makes names of calls; random ones where None.
        """
        if self._format is None:
            return PlainParser()
        return self._format.parser(self.names, new_id or self._format.new_id, self.streamed)


class ToolSupport:
    """Tools with a model, by its chat template; made once per model.

    Args:
        template: of the model.
        tokenizer: of the model.

    Attributes:
        format: form of the model's calls; None where it is not known.
        takes_tools: whether the template shows tools to the model.
    """

    def __init__(self, template: ChatTemplate, tokenizer: Tokenizer) -> None:
        self._template: Final = template
        self._tokenizer: Final = tokenizer
        self.format: Final = find_format(template)
        self.takes_tools: Final = _takes_tools(template)

    @checked_choices
    def plan(
        self, tools: Sequence[Mapping[str, Any]] | None = None, choice: Any = None, *, parallel: bool = True
    ) -> ToolPlan:
        """Returns what a request's tools mean; every request of a conversation has a plan, also one without tools.

        Args:
            tools: ``tools`` of the request.
            choice: ``tool_choice`` of the request.
            parallel: ``parallel_tool_calls`` of the request: whether an answer may have several calls.

        Raises:
            InputError: a tool or the choice is not as the API has it, or the model's template takes no tools.
        """
        read = read_tools(tools or ())
        wanted = read_choice(choice, read)
        if wanted.mode == "none":
            return self._without_tools()
        form = self._format_for_tools()
        demanded = wanted.mode == "required"
        callable_tools = tuple(tool for tool in read if wanted.name in (None, tool.name))
        grammar = None
        if demanded or any(tool.strict for tool in callable_tools):
            several = parallel and wanted.name is None
            grammar = form.grammar(CallGrammar(self._tokenizer, callable_tools, demanded), demanded, several)
        return ToolPlan(
            tools=tuple(tool.shown for tool in read),
            grammar=grammar,
            keep=self._kept(form),
            ends=self._ends(form),
            names=frozenset(tool.name for tool in callable_tools),
            streamed=demanded,
            _format=form,
        )

    def _without_tools(self) -> ToolPlan:
        form = self.format if self.format is not None and self.format.structured else None
        keep = frozenset[str]() if form is None else self._kept(form)
        ends = frozenset[int]() if form is None else self._ends(form)
        return ToolPlan(None, None, keep, ends, frozenset(), False, form)

    def _format_for_tools(self) -> CallFormat:
        if not self.takes_tools:
            raise InputError(
                f"tools: the chat template of {self._template.origin} does not show tools to the model: leave out "
                "`tools`, or use a model whose template takes them"
            )
        if self.format is None:
            raise InputError(
                f"tools: the chat template of {self._template.origin} writes calls in a form that is not read; those "
                "of Hermes and Qwen, Llama 3, Mistral and gpt-oss are: leave out `tools`, or use such a model"
            )
        return self.format

    def _kept(self, form: CallFormat) -> frozenset[str]:
        return frozenset(mark for mark in form.marks if self._tokenizer.special_id(mark) is not None)

    def _ends(self, form: CallFormat) -> frozenset[int]:
        return frozenset(index for mark in form.ends if (index := self._tokenizer.special_id(mark)) is not None)


def _takes_tools(template: ChatTemplate) -> bool:
    """Returns whether a tool that is given to a template comes into its text."""
    parameters = {"type": "object", "properties": {}}
    function = {"name": _PROBE, "description": "A probe.", "parameters": parameters}
    probe: Tool = read_tools([{"type": "function", "function": function}])[0]
    try:
        return _PROBE in template.render([{"role": "user", "content": "."}], tools=[probe.shown])
    except InputError:
        return False
