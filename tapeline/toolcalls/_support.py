"""Tools with one model: a request's parts for the prompt, the grammar and the parser."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from lang_core import InputError, checked_choices
from tapeline.grammar import GrammarSpec
from tapeline.text import ChatTemplate, Tokenizer
from tapeline.toolcalls._formats import GPT_OSS, HERMES, CallFormat, find_format
from tapeline.toolcalls._grammars import AnswerForm, CallGrammar, schema_name
from tapeline.toolcalls._parser import AnswerParser, NewId, PlainParser
from tapeline.toolcalls._think_parser import ThinkParser, thinking_marks
from tapeline.toolcalls._tools import Tool, read_choice, read_tools

_PROBE: Final = "tapeline_probe_of_tools"


def _as_it_is(schema: Any) -> Any:
    return schema


@checked_choices
@dataclass(frozen=True, slots=True)
class ToolPlan:
    """Consequences of a request's tools for its answer.

    Attributes:
        tools: tools that the model may call, as templates take them; None if there are none.
        schemas: field of the request that has the parameters of each tool, by the name of the schema in the grammar.
        grammar: constraint of the answer; None if it is free.
        keep: special tokens that the answer's text must show to the parser (``Tokenizer.stream(keep=...)``).
        ends: ids that end the answer, beside those of the model.
        names: names of the tools that may be called.
        parameters: JSON schema of the arguments of each tool that may be called, by its name.
        streamed: whether arguments come in pieces: if a grammar makes the answer a call.
        thinking: marks around the model's reasoning; None if it has none.
    """

    tools: tuple[Mapping[str, Any], ...] | None
    grammar: GrammarSpec | None
    keep: frozenset[str]
    ends: frozenset[int]
    names: frozenset[str]
    streamed: bool
    schemas: Mapping[str, str]
    parameters: Mapping[str, Any]
    thinking: tuple[str, str] | None
    _format: CallFormat | None

    @property
    def parses(self) -> bool:
        """True if answers may have parts other than text, such as calls."""
        return self._format is not None or self.thinking is not None

    @checked_choices
    def new_parser(self, new_id: NewId | None = None, *, begun: bool = False) -> AnswerParser:
        """Returns a parser for one answer.

        Args:
            new_id: makes names of calls; random ones if None.
            begun: True if the prompt ends with the mark that begins the reasoning.
        """
        parser: AnswerParser = PlainParser()
        if self._format is not None:
            parser = self._format.parser(self.parameters, new_id or self._format.new_id, self.streamed)
        return parser if self.thinking is None else ThinkParser(self.thinking, parser, begun=begun)


class ToolSupport:
    """Tools with a model, by its chat template; made once per model.

    Args:
        template: of the model.
        tokenizer: of the model.

    Attributes:
        format: form of the model's calls; None if it is not known.
        takes_tools: whether the template shows tools to the model.
        generic: True if the template does not show tools in a known form, so that ``generic_messages`` does.
        takes_system: whether the template shows a system message to the model.
    """

    def __init__(self, template: ChatTemplate, tokenizer: Tokenizer) -> None:
        self._template: Final = template
        self._tokenizer: Final = tokenizer
        self.format: Final = find_format(template)
        self.takes_tools: Final = _takes_tools(template)
        self.takes_system: Final = _takes_system(template)
        self._thinking: Final = None if find_format(template) is GPT_OSS else thinking_marks(template)
        self.generic: Final = self.format is None or not self.takes_tools

    @checked_choices
    def plan(
        self,
        tools: Sequence[Mapping[str, Any]] | None = None,
        choice: Any = None,
        *,
        parallel: bool = True,
        form: AnswerForm | None = None,
        adapt: Callable[[Any], Any] = _as_it_is,
    ) -> ToolPlan:
        """Returns the plan of a request's tools; every request of a conversation has a plan, also one without tools.

        Args:
            tools: ``tools`` of the request.
            choice: ``tool_choice`` of the request.
            parallel: ``parallel_tool_calls`` of the request: whether an answer may have several calls.
            form: format of an answer without a call; None for free text.
            adapt: returns the parameters of a tool in keywords that grammars have.

        Raises:
            InputError: a tool or the choice violates the API, or the request needs a grammar that the model's calls
                lack.
        """
        read = read_tools(tools or ())
        wanted = read_choice(choice, read)
        if wanted.mode == "none":
            return self._without_tools()
        called = HERMES if self.generic or self.format is None else self.format
        demanded = wanted.mode == "required"
        callable_tools = tuple(tool for tool in read if wanted.name in (None, tool.name))
        grammar = None
        if demanded or form is not None or any(tool.strict for tool in callable_tools):
            several = parallel and wanted.name is None
            adapted = tuple(replace(tool, parameters=adapt(tool.parameters)) for tool in callable_tools)
            rules = CallGrammar(self._tokenizer, adapted, demanded, form)
            grammar = called.grammar(rules, demanded, several)
        places = {tool.name: f"tools[{index}].function.parameters" for index, tool in enumerate(read)}
        return ToolPlan(
            tools=tuple(tool.shown for tool in read),
            grammar=grammar,
            keep=self._kept(called),
            ends=self._ends(called),
            names=frozenset(tool.name for tool in callable_tools),
            streamed=demanded,
            schemas={f"{schema_name(tool)}_{index}": places[tool.name] for index, tool in enumerate(callable_tools)},
            parameters={tool.name: tool.parameters for tool in callable_tools},
            thinking=self._thinking,
            _format=called,
        )

    def _without_tools(self) -> ToolPlan:
        form = self.format if self.format is not None and self.format.structured else None
        keep = self._kept(form)
        ends = frozenset[int]() if form is None else self._ends(form)
        return ToolPlan(
            tools=None,
            grammar=None,
            keep=keep,
            ends=ends,
            names=frozenset(),
            streamed=False,
            schemas={},
            parameters={},
            thinking=self._thinking,
            _format=form,
        )

    def _kept(self, form: CallFormat | None) -> frozenset[str]:
        marks = (*(() if form is None else form.marks), *(self._thinking or ()))
        return frozenset(mark for mark in marks if self._tokenizer.special_id(mark) is not None)

    def _ends(self, form: CallFormat) -> frozenset[int]:
        return frozenset(index for mark in form.ends if (index := self._tokenizer.special_id(mark)) is not None)


def _takes_system(template: ChatTemplate) -> bool:
    """Returns whether a system message that is given to a template comes into its text."""
    try:
        return _PROBE in template.render([{"role": "system", "content": _PROBE}, {"role": "user", "content": "."}])
    except InputError:
        return False


def _takes_tools(template: ChatTemplate) -> bool:
    """Returns whether a tool that is given to a template comes into its text."""
    parameters = {"type": "object", "properties": {}}
    function = {"name": _PROBE, "description": "A probe.", "parameters": parameters}
    probe: Tool = read_tools([{"type": "function", "function": function}])[0]
    try:
        return _PROBE in template.render([{"role": "user", "content": "."}], tools=[probe.shown])
    except InputError:
        return False
