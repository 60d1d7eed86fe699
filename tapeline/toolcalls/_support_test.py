"""Tools of a request with a model: the prompt, the grammar, the parser; and refusals."""

import functools
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import AddedToken

from lang_core import InputError
from tapeline.grammar import Choices, JsonObject, JsonSchema, RegularExpression, compile_constraint
from tapeline.grammar._walks_testing import satisfies, saved, walk
from tapeline.text import ChatTemplate, Tokenizer, _samples_testing
from tapeline.toolcalls import FORMATS, AnswerForm, CallFormat, ParsedAnswer, ToolPlan, ToolSupport, generic_messages

_SHOWN = "{% for t in tools or [] %}{{ t | tojson }}{% endfor %}{{ messages[-1].content }}"
_TEMPLATES = {
    "hermes": _SHOWN + "<tool_call>",
    "llama3": _SHOWN + '{# <|python_tag|> "parameters" #}',
    "mistral": _SHOWN + "{# [TOOL_CALLS] #}",
    "mistral-args": _SHOWN + "{# [TOOL_CALLS] [ARGS] #}",
    "gpt-oss": _SHOWN + "{# <|channel|> <|message|> #}",
    "granite": _SHOWN + "{# <|tool_call|> #}",
    "qwen3-coder": _SHOWN + "{# <tool_call> <function= <parameter= #}",
    "seed-oss": _SHOWN + "{# <seed:tool_call> <function= #}",
    "glm": _SHOWN + "{# <tool_call> <arg_key> #}",
    "minimax": _SHOWN + "{# <minimax:tool_call> <invoke #}",
    "kimi": _SHOWN + "{# <|tool_calls_section_begin|> #}",
    "deepseek": _SHOWN + "{# <\uff5ctool\u2581calls\u2581begin\uff5c> #}",
    "deepseek-fenced": _SHOWN + "{# <\uff5ctool\u2581calls\u2581begin\uff5c> ```json #}",
    "lfm2": _SHOWN + "{# <|tool_call_start|> #}",
}
_ALL = [form.name for form in FORMATS]
_TOKENS = ("gpt-oss", "kimi", "deepseek", "deepseek-fenced")  # whose marks are always tokens
_TEXTS = ("hermes", "qwen3-coder", "seed-oss", "glm", "minimax")  # whose marks are text
_PARAMETERS = {
    "type": "object",
    "properties": {"size": {"type": "integer", "minimum": 1, "maximum": 99}, "kind": {"$ref": "#/$defs/kind"}},
    "required": ["size", "kind"],
    "additionalProperties": False,
    "$defs": {"kind": {"enum": ["a", "the"]}},
}


def _function(name: str, parameters: Any = None, **more: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "parameters": parameters, **more}}


TOOLS = [_function("measure", _PARAMETERS, description="Measures."), _function("now")]


def _format(name: str) -> CallFormat:
    return next(form for form in FORMATS if form.name == name)


@pytest.fixture(params=["added", "plain"])
def marked(request: pytest.FixtureRequest) -> bool:
    """True where the marks are tokens of the tokenizer."""
    return request.param == "added"


def _tokenizer(directory: Path, family: str, marked: bool) -> Tokenizer:
    inner = _samples_testing.byte_level()
    form = _format(family)
    if marked:
        special = family not in _TEXTS
        inner.add_tokens([AddedToken(mark, special=special, normalized=False) for mark in form.marks])
        inner.add_tokens([AddedToken(mark, special=True, normalized=False) for mark in form.ends])
    return saved(inner, directory)


@functools.lru_cache(maxsize=3)  # a tokenizer's grammars have a process, which the tests of a family share
def _support(directory: Path, family: str, marked: bool = True) -> tuple[ToolSupport, Tokenizer]:
    tokenizer = _tokenizer(directory, family, marked)
    return ToolSupport(ChatTemplate(_TEMPLATES[family], family), tokenizer), tokenizer


@pytest.fixture(scope="module", params=_ALL)
def family(request: pytest.FixtureRequest) -> str:
    """Name of a form of calls; pytest runs all tests of a form before those of the next one."""
    return request.param


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder where tokenizers are saved."""
    return tmp_path_factory.mktemp("tokenizers")


def _answers(plan: ToolPlan, tokenizer: Tokenizer, count: int) -> list[ParsedAnswer]:
    """Returns the answers of random walks under a plan's grammar."""
    assert plan.grammar is not None
    ends = frozenset({1}) | plan.ends
    end = tokenizer.special_id("<|end|>")
    marks = () if end is None else (end,)
    answers: list[ParsedAnswer] = []
    for seed in range(count):
        ids, ended = walk(
            compile_constraint(plan.grammar, tokenizer, ends), tokenizer, ends, np.random.default_rng(seed), 60, marks
        )
        assert ended
        stream, parser = tokenizer.stream(keep=plan.keep), plan.new_parser()
        deltas = [delta for token in ids for delta in parser.push(stream.push(token))]
        answers.append(ParsedAnswer.joined([*deltas, *parser.push(stream.finish()), *parser.finish()]))
    return answers


def test_the_form_is_found_in_the_template(family: str, folder: Path) -> None:
    support, _ = _support(folder, family)
    assert support.takes_tools
    assert support.format is _format(family)


def test_required_calls_are_calls(family: str, marked: bool, folder: Path) -> None:
    support, tokenizer = _support(folder, family, marked or family in _TOKENS)
    plan = support.plan(TOOLS, "required")
    assert plan.streamed
    for answer in _answers(plan, tokenizer, 8):
        assert answer.calls
        assert answer.text == "" or family == "gpt-oss"  # notes before the call
        for call in answer.calls:
            arguments = json.loads(call.arguments)
            assert (
                satisfies(arguments, _PARAMETERS) if call.name == "measure" else (call.name, arguments) == ("now", {})
            )


def test_a_named_tool_is_called_once(family: str, folder: Path) -> None:
    support, tokenizer = _support(folder, family)
    plan = support.plan(TOOLS, {"type": "function", "function": {"name": "measure"}})
    assert plan.tools is not None
    assert len(plan.tools) == 2  # the prompt is that of every choice
    for answer in _answers(plan, tokenizer, 4):
        assert [call.name for call in answer.calls] == ["measure"]


def test_one_call_where_several_are_not_wanted(family: str, folder: Path) -> None:
    support, tokenizer = _support(folder, family)
    for answer in _answers(support.plan(TOOLS, "required", parallel=False), tokenizer, 4):
        assert len(answer.calls) == 1


def test_strict_tools_are_held_where_the_model_is_free(family: str, folder: Path) -> None:
    support, tokenizer = _support(folder, family)
    plan = support.plan([_function("measure", _PARAMETERS, strict=True), _function("now")], "auto")
    assert not plan.streamed
    calls = [call for answer in _answers(plan, tokenizer, 30) for call in answer.calls]
    for call in calls:
        if call.name == "measure":
            assert satisfies(json.loads(call.arguments), _PARAMETERS)


def test_free_answers_have_no_grammar(family: str, folder: Path) -> None:
    support, _ = _support(folder, family)
    plan = support.plan(TOOLS)
    assert plan.grammar is None
    assert plan.names == {"measure", "now"}
    assert plan.tools == tuple(TOOLS)


def test_answers_without_tools(family: str, folder: Path) -> None:
    support, _ = _support(folder, family)
    for plan in (support.plan(), support.plan([], "auto"), support.plan(TOOLS, "none"), support.plan((), "none")):
        assert (plan.tools, plan.grammar, plan.names) == (None, None, frozenset())
        text = "<tool_call> [TOOL_CALLS] {}"
        parser = plan.new_parser()
        assert ParsedAnswer.joined([*parser.push(text), *parser.finish()]).text == text
        assert bool(plan.keep) == (family == "gpt-oss")


def test_more_tokens_end_an_answer(folder: Path) -> None:
    for family, mark in (("llama3", "<|eom_id|>"), ("gpt-oss", "<|call|>")):
        support, tokenizer = _support(folder, family)
        assert tokenizer.special_id(mark) in support.plan(TOOLS).ends


def test_strict_is_not_shown(folder: Path) -> None:
    support, _ = _support(folder, "hermes")
    plan = support.plan([_function("now", strict=True)])
    assert plan.tools == (_function("now"),)


def test_loose_tools_take_any_object_where_a_call_is_demanded(folder: Path) -> None:
    support, tokenizer = _support(folder, "hermes")
    tools = [_function("f", {"type": "object", "not": {}}, strict=False)]
    for answer in _answers(support.plan(tools, "required", parallel=False), tokenizer, 2):
        assert isinstance(json.loads(answer.calls[0].arguments), dict)


@pytest.mark.parametrize("strict", [None, True])
def test_schemas_of_tools_that_cannot_be_held_to(strict: bool | None, folder: Path) -> None:
    support, tokenizer = _support(folder, "hermes")
    tools = [_function("g-f", {"properties": {"a": {"not": {}}}}, strict=strict)]
    plan = support.plan(tools, "required")
    assert plan.grammar is not None
    with pytest.raises(InputError, match="g_f_0 at #/properties/a: keyword 'not' is not supported"):
        compile_constraint(plan.grammar, tokenizer, [1])


@pytest.mark.parametrize(
    "template",
    [
        "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}",
        "{% for m in messages %}{% if m.role not in ['user', 'assistant'] %}{{ raise_exception('no') }}{% endif %}"
        "[{{ m.role }}]{{ m.content }}{% endfor %}",
        "{% for t in tools or [] %}{{ t | tojson }}{% endfor %}"
        "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}",
    ],
)
def test_tools_go_with_any_template(template: str, tmp_path: Path) -> None:
    """A template that shows no tools, or writes calls in an unknown form, has them in a message."""
    chat_template = ChatTemplate(template, "here")
    tokenizer = _tokenizer(tmp_path, "hermes", True)
    support = ToolSupport(chat_template, tokenizer)
    assert support.generic
    plan = support.plan(TOOLS, "required")
    for answer in _answers(plan, tokenizer, 3):
        assert all(call.name in ("measure", "now") for call in answer.calls)
        assert answer.calls
    call = {"id": "c", "type": "function", "function": {"name": "measure", "arguments": {"size": 3}}}
    messages = [
        {"role": "user", "content": "How long?"},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": "three"},
        {"role": "tool", "tool_call_id": "d", "content": "four"},
    ]
    text = chat_template.render(generic_messages(messages, plan.tools or (), system=support.takes_system))
    assert text.count("<tools>") == 1
    assert json.dumps(TOOLS[0], ensure_ascii=False) in text
    assert '<tool_call>\n{"name": "measure", "arguments": {"size": 3}}\n</tool_call>' in text
    assert text.endswith("[user]<tool_response>\nthree\n</tool_response>\n<tool_response>\nfour\n</tool_response>")
    assert text.index("<tools>") < text.index("How long?")
    assert support.takes_system == text.startswith("[system]")


def test_calls_as_python_have_the_optional_arguments_of_their_tool(folder: Path) -> None:
    """Commas are right whichever arguments are missing, and values are those of the schema."""
    parameters = {
        "type": "object",
        "properties": {
            "note": {"type": "string", "maxLength": 6},
            "deep": {"type": "object", "properties": {"x": {"type": "boolean"}}, "required": ["x"]},
            "count": {"type": "integer", "minimum": 0, "maximum": 9},
            "unit": {"enum": ["m", None]},
        },
        "required": ["count"],
    }
    support, tokenizer = _support(folder, "lfm2")
    plan = support.plan([_function("measure", parameters)], "required")
    keys: set[tuple[str, ...]] = set()
    for answer in _answers(plan, tokenizer, 40):
        for call in answer.calls:
            arguments = json.loads(call.arguments)
            assert satisfies(arguments, parameters)
            keys.add(tuple(arguments))
    assert {"count" in some for some in keys} == {True}
    assert len(keys) > 3


@pytest.mark.parametrize(
    ("form", "matches"),
    [
        (JsonSchema({"type": "object", "properties": {"a": {"const": 1}}, "required": ["a"]}), None),
        (JsonObject(), None),
        (Choices(["yes/no", "it's"]), r"yes/no|it's"),
        (RegularExpression("[ab]{2}/x"), "[ab]{2}/x"),
    ],
)
def test_tools_go_with_a_format(family: str, form: AnswerForm, matches: str | None, folder: Path) -> None:
    """An answer is calls, or satisfies the format."""
    support, tokenizer = _support(folder, family)
    plan = support.plan([_function("now")], form=form)
    called = said = 0
    for answer in _answers(plan, tokenizer, 12):
        if answer.calls:
            called += 1
        else:
            said += 1
            text = answer.text
            assert isinstance(json.loads(text), dict) if matches is None else re.fullmatch(matches, text), text
    assert called + said == 12


@pytest.mark.parametrize(
    ("tools", "choice", "message"),
    [
        ([{"type": "web"}], None, r"tools\[0\]: expected a tool of type function .* found \{'type': 'web'\}"),
        ([{"type": "function"}], None, r"tools\[0\]: expected a tool of type function"),
        ([_function("")], None, r"tools\[0\].function.name: expected 1 to 64 of .* found '': rename it"),
        ([_function('a"b')], None, r"tools\[0\].function.name: expected 1 to 64 of"),
        ([_function("a"), _function("a")], None, "tools: two are called 'a': give each a name of its own"),
        ([_function("a", strict=1)], None, r"tools\[0\].function.strict: expected true or false; found 1"),
        ([_function("a", [])], None, r"tools\[0\].function.parameters: .* type object; found \[\]"),
        ([_function("a", {"type": "array"})], None, r"tools\[0\].function.parameters: .* found type 'array'"),
        (TOOLS, "all", "tool_choice: expected none, auto, required or a function by name; found 'all': give for"),
        (TOOLS, {"type": "function"}, "tool_choice: expected none, auto, required or a function by name"),
        (TOOLS, 3, "tool_choice: expected none, auto, required or a function by name; found 3"),
        (TOOLS, {"type": "function", "function": {"name": "x"}}, "tool_choice: 'x' not found; available: measure, now"),
        ([], {"type": "function", "function": {"name": "x"}}, "tool_choice: 'x' not found; available: no tools"),
        ([], "required", "tool_choice: 'required' needs `tools`: give them, or leave it out"),
    ],
)  # fmt: skip
def test_requests_that_are_wrong(tools: Any, choice: Any, message: str, folder: Path) -> None:
    support, _ = _support(folder, "hermes")
    with pytest.raises(InputError, match=message):
        support.plan(tools, choice)
