"""Calls parsed out of answers: the documented forms, damage, and any split of the text."""

import doctest
import itertools
import json
import os
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tapeline.toolcalls import (
    FORMATS,
    CallDelta,
    CallFormat,
    ParsedAnswer,
    PlainParser,
    TextDelta,
    _cut_json,
    _deltas,
    _scan,
)
from tapeline.toolcalls._parser import long_id, short_id
from tapeline.toolcalls._think_parser import ThinkParser

LONG = os.environ.get("TAPELINE_LONG") == "1"
TOOLS = frozenset({"get_weather", "now"})
_FORMATS = {form.name: form for form in FORMATS}
_PARIS = '{"city": "Paris"}'
_TRICKY = '{"text": "a } b ] \\" </tool_call> [TOOL_CALLS] ; é日", "list": [{"x": [1]}]}'


def _parsed(form: CallFormat, pieces: Iterable[str], streamed: bool = False, *, cut: bool = False) -> ParsedAnswer:
    names = itertools.count()
    parser = form.parser(TOOLS, lambda: f"id{next(names)}", streamed)
    deltas = [delta for piece in pieces for delta in parser.push(piece)]
    answer = ParsedAnswer.joined([*deltas, *parser.finish(cut=cut)])
    assert parser.calls == len(answer.calls)
    assert parser.finish() == []
    return answer


def _calls(answer: ParsedAnswer) -> list[tuple[str, str]]:
    return [(call.name, call.arguments) for call in answer.calls]


def _object(name: str, arguments: str, key: str = "arguments") -> str:
    return f'{{"name": "{name}", "{key}": {arguments}}}'


_HERMES = f"<tool_call>\n{_object('get_weather', _PARIS)}\n</tool_call>"
_HARMONY_CALL = "<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>"


_DEEPSEEK = "<\uff5ctool\u2581calls\u2581begin\uff5c>{}<\uff5ctool\u2581calls\u2581end\uff5c>"
_DEEPSEEK_CALL = (
    "<\uff5ctool\u2581call\u2581begin\uff5c>{}<\uff5ctool\u2581sep\uff5c>{}<\uff5ctool\u2581call\u2581end\uff5c>"
)
_FUNCTION = "<function=get_weather>\n<parameter=city>\nParis\n</parameter>\n</function>"
_NO_ARGUMENTS = "<function=now>\n</function>"


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize(
    ("family", "text", "said", "calls"),
    [
        (
            "granite",
            f"So <|tool_call|>[{_object('get_weather', _PARIS)}, {_object('now', '{}')}]",
            "So",
            [("get_weather", _PARIS), ("now", "{}")],
        ),
        ("qwen3-coder", f"<tool_call>\n{_FUNCTION}\n</tool_call>", "", [("get_weather", _PARIS)]),
        (
            "qwen3-coder",
            f"I look.\n<tool_call>\n{_FUNCTION}\n</tool_call>\n<tool_call>\n{_NO_ARGUMENTS}\n</tool_call>",
            "I look.",
            [("get_weather", _PARIS), ("now", "{}")],
        ),
        ("qwen3-coder", _FUNCTION, "", [("get_weather", _PARIS)]),  # a section's mark is often missing
        (
            "qwen3-coder",
            "<tool_call>\n<function=now>\n<parameter=code>\nif a < b:\n    print('<tool_call>')\n</parameter>\n"
            "<parameter=n>\n3\n</parameter>\n<parameter=l>\n[1, {}]\n</parameter>\n</function>\n</tool_call>",
            "",
            [("now", '{"code": "if a < b:\\n    print(\'<tool_call>\')", "n": 3, "l": [1, {}]}')],
        ),
        ("seed-oss", f"<seed:tool_call>\n{_FUNCTION}\n</seed:tool_call>", "", [("get_weather", _PARIS)]),
        (
            "glm",
            "Hm.\n<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Paris</arg_value>\n</tool_call>",
            "Hm.",
            [("get_weather", _PARIS)],
        ),
        (
            "glm",
            "<tool_call>get_weather<arg_key>city</arg_key><arg_value>Paris</arg_value></tool_call>"
            "<tool_call>now</tool_call>",
            "",
            [("get_weather", _PARIS), ("now", "{}")],
        ),
        (
            "minimax",
            '<minimax:tool_call>\n<invoke name="get_weather">\n<parameter name="city">Paris</parameter>\n</invoke>\n'
            '<invoke name="now">\n</invoke>\n</minimax:tool_call>',
            "",
            [("get_weather", _PARIS), ("now", "{}")],
        ),
        (
            "kimi",
            "So.<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0<|tool_call_argument_begin|>"
            f"{_PARIS}<|tool_call_end|><|tool_call_begin|>functions.now:1<|tool_call_argument_begin|>{{}}"
            "<|tool_call_end|><|tool_calls_section_end|>",
            "So.",
            [("get_weather", _PARIS), ("now", "{}")],
        ),
        (
            "deepseek",
            _DEEPSEEK.format(_DEEPSEEK_CALL.format("get_weather", _PARIS) + _DEEPSEEK_CALL.format("now", "{}")),
            "",
            [("get_weather", _PARIS), ("now", "{}")],
        ),
        (
            "deepseek-fenced",
            _DEEPSEEK.format(_DEEPSEEK_CALL.format("function", f"get_weather\n```json\n{_PARIS}\n```")),
            "",
            [("get_weather", _PARIS)],
        ),
        (
            "lfm2",
            "So<|tool_call_start|>[get_weather(city='Paris'), now()]<|tool_call_end|>",
            "So",
            [("get_weather", _PARIS), ("now", "{}")],
        ),
        (
            "lfm2",
            '<|tool_call_start|>[now(deep={"x": [true, null]}, s="a\\/b, )]", n=-1.5),now()]<|tool_call_end|>',
            "",
            [("now", '{"deep": {"x": [true, null]}, "s": "a/b, )]", "n": -1.5}'), ("now", "{}")],
        ),
        (
            "lfm2",
            "<|tool_call_start|>[now(a=True, b='x\\x41', c=(1, 2))]<|tool_call_end|>",
            "",
            [("now", '{"a": true, "b": "xA", "c": [1, 2]}')],
        ),
        ("hermes", "No tools.", "No tools.", []),
        ("hermes", _HERMES, "", [("get_weather", _PARIS)]),
        ("hermes", f"I look.\n\n{_HERMES}\n{_HERMES}", "I look.", [("get_weather", _PARIS)] * 2),
        ("hermes", f"{_HERMES}\nThere.\n", "There.\n", [("get_weather", _PARIS)]),
        ("hermes", f"<tool_call>{_object('now', '{}')}", "", [("now", "{}")]),
        ("hermes", f"<tool_call>\n{_object('now', _TRICKY)}\n</tool_call>", "", [("now", _TRICKY)]),
        ("llama3", "No tools.", "No tools.", []),
        ("llama3", _object("get_weather", _PARIS, "parameters"), "", [("get_weather", _PARIS)]),
        ("llama3", f"\n<|python_tag|>{_object('now', '{}', 'parameters')}", "", [("now", "{}")]),
        (
            "llama3",
            f"{_object('now', '{}', 'parameters')}; {_object('get_weather', _TRICKY, 'parameters')}",
            "",
            [("now", "{}"), ("get_weather", _TRICKY)],
        ),
        ("mistral", "No tools.", "No tools.", []),
        ("mistral", f"[TOOL_CALLS] [{_object('get_weather', _PARIS)}]", "", [("get_weather", _PARIS)]),
        (
            "mistral",
            f"So: [TOOL_CALLS][{_object('now', '{}')}, {_object('get_weather', _TRICKY)}]",
            "So:",
            [("now", "{}"), ("get_weather", _TRICKY)],
        ),
        ("mistral-args", f"[TOOL_CALLS]get_weather[ARGS]{_PARIS}", "", [("get_weather", _PARIS)]),
        (
            "mistral-args",
            f"Hm.[TOOL_CALLS]now[CALL_ID]abcdefgh1[ARGS]{{}}[TOOL_CALLS]get_weather[ARGS]{_TRICKY}",
            "Hm.",
            [("now", "{}"), ("get_weather", _TRICKY)],
        ),
        ("gpt-oss", "<|channel|>final<|message|>No tools.", "No tools.", []),
        ("gpt-oss", "No marks.", "No marks.", []),
        ("gpt-oss", f"{_HARMONY_CALL}{_PARIS}<|call|>", "", [("get_weather", _PARIS)]),
        (
            "gpt-oss",
            f" to=functions.now<|channel|>commentary json<|message|>{_TRICKY}",
            "",
            [("now", _TRICKY)],
        ),
    ],
)
def test_documented_forms(family: str, text: str, said: str, calls: list[tuple[str, str]], streamed: bool) -> None:
    answer = _parsed(_FORMATS[family], [text], streamed)
    assert (answer.text, _calls(answer)) == (said, calls)
    assert [call.id for call in answer.calls] == [f"id{index}" for index in range(len(calls))]
    assert _parsed(_FORMATS[family], text, streamed) == answer  # character by character


def test_channels_of_gpt_oss() -> None:
    text = (
        "<|channel|>analysis<|message|>The user\nasks.<|end|><|start|>assistant<|channel|>commentary<|message|>I look."
        f"<|end|><|start|>assistant{_HARMONY_CALL}{_PARIS}"
    )
    for streamed in (False, True):
        answer = _parsed(_FORMATS["gpt-oss"], [text], streamed)
        assert (answer.reasoning, answer.text) == ("The user\nasks.", "I look.")
        assert _calls(answer) == [("get_weather", _PARIS)]


@pytest.mark.parametrize(
    ("family", "text"),
    [
        ("hermes", '  <tool_call>\n{"name": "get_weather", "arguments": {"city": }}\n</tool_call> '),
        ("hermes", f"<tool_call>{_object('unknown', '{}')}</tool_call>"),
        ("hermes", '<tool_call>{"name": "now", "arguments": 3}</tool_call>'),
        ("hermes", '<tool_call>{"name": "now", "arguments": "three"}</tool_call>'),
        ("hermes", '<tool_call>{"name": "now", "arguments": {}, "parameters": {}}</tool_call>'),
        ("hermes", '<tool_call>{"name": "now", "surprise": {}}</tool_call>'),
        ("hermes", '<tool_call>{"arguments": {}}</tool_call>'),
        ("hermes", '<tool_call>{"name": 3}</tool_call>'),
        ("hermes", '<tool_call>{"name": "now", "arguments": {'),  # the answer ended in it
        ("hermes", "<tool_call>\nnow()\n</tool_call>"),
        ("hermes", "<tool_call>"),
        ("hermes", "<tool_call> \n"),
        ("hermes", "a < b <tool_cal"),
        ("hermes", "<tool_call>" + "[" * 100_000),
        ("hermes", '<tool_call>{"name": ' + "[" * 100_000 + "]" * 100_000 + "}"),
        ("llama3", '{"city": "Paris"}'),
        ("llama3", ' {"name": "Paris", "temperature": 20}\n'),
        ("llama3", '{"name": "Anna"'),
        ("llama3", "{not json"),
        ("llama3", "{}"),
        ("llama3", "<|python_tag|>print(1)"),
        ("llama3", "The object {} is empty <|python"),
        ("llama3", " \n"),
        ("mistral", "[TOOL_CALLS] [now]"),
        ("mistral", "[TOOL_CALLS] [ "),
        ("mistral", '[TOOL_CALLS] {"name": 3}'),
        ("mistral", "a list [1, 2] [TOOL_CAL"),
        ("mistral-args", "[TOOL_CALLS]unknown[ARGS]{}"),
        ("mistral-args", "[TOOL_CALLS]now[ARGS]three"),
        ("mistral-args", '[TOOL_CALLS]now[ARGS]{"a": }'),
        ("mistral-args", '[TOOL_CALLS]now[ARGS]{"a": '),
        ("mistral-args", "[TOOL_CALLS]now[ARGS]"),
        ("mistral-args", "[TOOL_CALLS]now[ARG"),
        ("mistral-args", "[TOOL_CALLS]" + "n" * 200),
        ("gpt-oss", f"{_HARMONY_CALL}{{bad"),
        ("qwen3-coder", "a < b <function"),
        ("qwen3-coder", "<tool_call>\n<function=unknown>\n</function>\n</tool_call>"),
        ("qwen3-coder", "<tool_call>\n<function=now>\nwords\n</function>"),
        ("qwen3-coder", "<tool_call>\n<function=now>\n<parameter=a>\n"),
        ("glm", "<tool_call>unknown</tool_call>"),
        ("glm", "<tool_call>now<arg_key>a</arg_key></tool_call>"),
        ("minimax", '<minimax:tool_call>\n<invoke name="unknown">\n</invoke>'),
        (
            "kimi",
            "<|tool_calls_section_begin|><|tool_call_begin|>functions.now:0<|tool_call_argument_begin|>{<|tool_call_end|>",
        ),
        ("deepseek", _DEEPSEEK.format(_DEEPSEEK_CALL.format("now", "3"))),
        ("lfm2", "<|tool_call_start|>[now(1)]<|tool_call_end|>"),
        ("lfm2", "<|tool_call_start|>[now(a=NaN)]<|tool_call_end|>"),
        ("lfm2", "<|tool_call_start|>[now(a=1 b=2)]<|tool_call_end|>"),
        ("lfm2", "<|tool_call_start|>[now(a=1)<|tool_call_end|>"),
        ("lfm2", "<|tool_call_start|>[now(a=1), unknown(a=1)]<|tool_call_end|>"),
        ("lfm2", "<|tool_call_start|>[now(**a)]<|tool_call_end|>"),
        ("lfm2", "<|tool_call_start|>[now(a=print())]<|tool_call_end|>"),
        ("lfm2", "<|tool_call_start|>" + "[" * 100_000 + "<|tool_call_end|>"),
        ("lfm2", "<|tool_call_start|>[now(a=" + "-" * 50_000 + "1)]<|tool_call_end|>"),
        ("lfm2", "<|tool_call_start|>[now(a=" + "9" * 50_000 + ")]<|tool_call_end|>"),
        ("gpt-oss", "<|channel|>commentary to=functions.unknown<|message|>{}"),
        ("gpt-oss", "<|channel|>final"),
        ("gpt-oss", "a <|mess"),
    ],
)
def test_what_is_no_call_is_text(family: str, text: str) -> None:
    answer = _parsed(_FORMATS[family], [text])
    assert (answer.text, answer.calls) == (text, ())


def test_a_damaged_call_after_a_good_one() -> None:
    answer = _parsed(_FORMATS["mistral"], [f'[TOOL_CALLS] [{_object("now", "{}")}, {{"name": }}]'])
    assert (answer.text, _calls(answer)) == (', {"name": }]', [("now", "{}")])


def test_arguments_in_a_string() -> None:
    answer = _parsed(_FORMATS["hermes"], ['<tool_call>{"name": "now", "arguments": "{\\"a\\": 1}"}</tool_call>'])
    assert _calls(answer) == [("now", '{"a": 1}')]


def test_a_call_without_arguments() -> None:
    assert _calls(_parsed(_FORMATS["llama3"], ['{"name": "now"}'])) == [("now", "{}")]


def test_arguments_come_in_pieces_under_a_grammar() -> None:
    parser = _FORMATS["hermes"].parser(TOOLS, lambda: "id", True)
    assert parser.push("<tool_call>\n") == []
    assert parser.push('{"name": "now", "arguments": {') == [
        CallDelta(0, "id", "now", ""),
        CallDelta(0, None, None, "{"),
    ]
    assert parser.push('"a": "}') == [CallDelta(0, None, None, '"a": "}')]
    assert parser.push('"}') == [CallDelta(0, None, None, '"}')]
    assert parser.push("}\n</tool_call>") == []
    assert parser.finish() == []


def test_a_call_that_the_length_cut_keeps_its_pieces() -> None:
    for family, head in (
        ("mistral-args", "[TOOL_CALLS]now[ARGS]"),
        ("gpt-oss", _HARMONY_CALL.replace("get_weather", "now")),
    ):
        assert _calls(_parsed(_FORMATS[family], [head + '{"a": "b'], True)) == [("now", '{"a": "b')]


def test_text_comes_at_once_and_half_marks_wait() -> None:
    parser = _FORMATS["hermes"].parser(TOOLS, lambda: "id", False)
    assert parser.push("Hello") == [TextDelta("Hello")]
    assert parser.push(" <") == []
    assert parser.push("b>") == [TextDelta(" <b>")]
    assert parser.push("<tool_c") == []
    assert parser.finish() == [TextDelta("<tool_c")]


_FRAGMENTS = {
    "hermes": ["<tool_call>", "</tool_call>", "<tool", "_call>"],
    "llama3": ["<|python_tag|>", "<|python", ";", "; "],
    "mistral": ["[TOOL_CALLS]", "[TOOL", "[", "]", ", "],
    "mistral-args": ["[TOOL_CALLS]", "[ARGS]", "[CALL_ID]", "now", "[ARGS"],
    "gpt-oss": [
        "<|channel|>",
        "<|message|>",
        "<|end|>",
        "<|start|>assistant",
        "final",
        "analysis",
        " to=functions.now",
    ],
}
_FRAGMENTS |= {
    "granite": ["<|tool_call|>", "<|tool", "[", "]", ", "],
    "qwen3-coder": [
        "<tool_call>", "</tool_call>", "<function=now>", "</function>", "<parameter=a>", "</parameter>", "<func",
        _FUNCTION,
    ],
    "seed-oss": ["<seed:tool_call>", "</seed:tool_call>", "<function=now>", "</function>", "<seed", _FUNCTION],
    "glm": ["<tool_call>", "</tool_call>", "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>", "now", "<tool"],
    "minimax": [
        "<minimax:tool_call>", "</minimax:tool_call>", '<invoke name="now">', "</invoke>", "<invoke", "</parameter>",
        '<parameter name="a">',
    ],
    "kimi": [
        "<|tool_calls_section_begin|>", "<|tool_call_begin|>", "functions.now:0", "<|tool_call_argument_begin|>",
        "<|tool_call_end|>", "<|tool_calls_section_end|>", "<|tool",
    ],
    "deepseek": [_DEEPSEEK[:10], _DEEPSEEK_CALL, _DEEPSEEK_CALL.format("now", "{}"), _DEEPSEEK.format(""), "\uff5c"],
    "deepseek-fenced": [_DEEPSEEK[:10], _DEEPSEEK_CALL.format("function", "now\n```json\n{}\n```"), "```", "\uff5c"],
    "lfm2": ["<|tool_call_start|>", "<|tool_call_end|>", "[now(a=1)]", "now(", ")", "<|tool"],
}  # fmt: skip
_COMMON = [
    _object("now", "{}"), _object("get_weather", _TRICKY, "parameters"), _object("none", "{}"), _PARIS, "{", "}", '"',
    '{"name": "now", "arguments": ', " ", "\n", "text ", "é", "\\",
]  # fmt: skip


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("family", list(_FRAGMENTS))
@settings(max_examples=4000 if LONG else 60, deadline=None)
@given(data=st.data())
def test_any_split_gives_the_same_answer(family: str, streamed: bool, data: st.DataObject) -> None:
    fragments = st.lists(st.sampled_from([*_FRAGMENTS[family], *_COMMON]), max_size=8)
    text = "".join(data.draw(fragments))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=8)))
    pieces = [text[start:stop] for start, stop in itertools.pairwise([0, *cuts, len(text)])]
    answer = _parsed(_FORMATS[family], [text], streamed)
    assert _parsed(_FORMATS[family], pieces, streamed) == answer
    assert _parsed(_FORMATS[family], text, streamed) == answer
    shortened = _parsed(_FORMATS[family], [text], streamed, cut=True)
    assert _parsed(_FORMATS[family], pieces, streamed, cut=True) == shortened
    assert _parsed(_FORMATS[family], text, streamed, cut=True) == shortened
    if not streamed:
        assert all(isinstance(json.loads(call.arguments), dict) for call in answer.calls)
        if not answer.calls and family != "gpt-oss":
            assert answer.text == text


@pytest.mark.parametrize(
    ("schema", "text", "value"),
    [
        ({"type": "string"}, "3", "3"),
        ({"type": "string"}, " {} ", " {} "),
        ({"type": "integer"}, "3", 3),
        ({"type": "integer"}, "three", "three"),
        ({"type": "boolean"}, "True", True),
        ({"type": ["boolean", "null"]}, "None", None),
        ({"type": ["string", "null"]}, "null", None),
        ({"type": ["string", "null"]}, "3", "3"),
        ({"anyOf": [{"type": "string"}, {"type": "integer"}]}, "3", 3),
        ({"anyOf": [{"type": "string"}, {"type": "integer"}]}, "[3]", "[3]"),
        ({"enum": ["1", "2"]}, "1", "1"),
        ({"$ref": "#/$defs/text"}, "3", "3"),
        ({"type": "array"}, "[1, 2]", [1, 2]),
        ({}, '{"a": 1}', {"a": 1}),
        ({}, "Paris", "Paris"),
    ],
)
def test_arguments_in_elements_have_the_types_of_the_schema(schema: Any, text: str, value: Any) -> None:
    tools = {"now": {"type": "object", "properties": {"a": schema}, "$defs": {"text": {"type": "string"}}}}
    parser = _FORMATS["qwen3-coder"].parser(tools, lambda: "id", False)
    deltas = parser.push(f"<tool_call><function=now><parameter=a>\n{text}\n</parameter></function></tool_call>")
    (call,) = ParsedAnswer.joined([*deltas, *parser.finish()]).calls
    assert json.loads(call.arguments) == {"a": value}
    assert type(json.loads(call.arguments)["a"]) is type(value)


@pytest.mark.parametrize(
    ("family", "text", "said", "calls"),
    [
        ("hermes", "so <tool_c", "so ", []),
        ("hermes", "so <tool_call>", "so", []),
        ("hermes", '<tool_call>\n{"name": "no', "", []),
        ("hermes", '<tool_call>\n{"name": "now", "arguments": {"a": "b', "", [("now", '{"a": "b')]),
        ("hermes", f"{_HERMES}\n<tool", "", [("get_weather", _PARIS)]),
        ("llama3", '{"name": "now", "parameters": {"a": ', "", [("now", '{"a": ')]),
        ("llama3", '{"name": "Anna"', '{"name": "Anna"', []),
        ("llama3", "so <|python_t", "so ", []),
        ("mistral", "so [TOOL_CALLS] [", "so", []),
        ("mistral-args", 'so [TOOL_CALLS]now[ARGS]{"a', "so", [("now", '{"a')]),
        ("mistral-args", "so [TOOL_CALLS]now[AR", "so", []),
        ("gpt-oss", "<|channel|>final<|message|>so <|en", "so ", []),
        ("gpt-oss", "<|channel|>fin", "", []),
        ("gpt-oss", _HARMONY_CALL.replace("get_weather", "now") + '{"a', "", [("now", '{"a')]),
    ],
)
def test_an_answer_that_is_cut_off_shows_no_marks(
    family: str, text: str, said: str, calls: list[tuple[str, str]]
) -> None:
    for pieces in ([text], text):
        answer = _parsed(_FORMATS[family], pieces, cut=True)
        assert (answer.text, _calls(answer)) == (said, calls)


@pytest.mark.parametrize(
    ("begun", "text", "reasoning", "said"),
    [
        (False, "<think>\nHm.\n</think>\n\nSo.", "Hm.", "So."),
        (False, "<think>\n\n</think>\n\nSo.", "", "So."),
        (False, "So <think>x</think>.", "", "So <think>x</think>."),
        (False, " \nSo.", "", " \nSo."),
        (False, "<thin", "", "<thin"),
        (True, "Hm.\n</think>\n\nSo.", "Hm.", "So."),
        (True, "a </thin b </think> <think>", "a </thin b", "<think>"),
        (True, "Hm. ", "Hm. ", ""),
        (True, f"Hm.</think>{_HERMES}", "Hm.", ""),
    ],
)
def test_reasoning_between_marks(begun: bool, text: str, reasoning: str, said: str) -> None:
    for pieces in ([text], text, [text[:9], text[9:]]):
        parser = ThinkParser(
            ("<think>", "</think>"), _FORMATS["hermes"].parser(TOOLS, lambda: "id", False), begun=begun
        )
        deltas = [delta for piece in pieces for delta in parser.push(piece)]
        answer = ParsedAnswer.joined([*deltas, *parser.finish()])
        assert (answer.reasoning, answer.text) == (reasoning, said)
        assert len(answer.calls) == ("<tool_call>" in text)
        cut = ThinkParser(("<think>", "</think>"), PlainParser(), begun=True)
        assert ParsedAnswer.joined([*cut.push("Hm. </thi"), *cut.finish(cut=True)]).reasoning == "Hm. "


@settings(max_examples=2000 if LONG else 200, deadline=None)
@given(data=st.data())
def test_any_split_gives_the_same_reasoning(data: st.DataObject) -> None:
    fragments = ["<think>", "</think>", "<thi", "nk>", "</", " ", "\n", "text", *_FRAGMENTS["hermes"], _HERMES]
    text = "".join(data.draw(st.lists(st.sampled_from(fragments), max_size=8)))
    begun, cut = data.draw(st.booleans()), data.draw(st.booleans())
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=8)))

    def parsed(pieces: Iterable[str]) -> ParsedAnswer:
        inner = _FORMATS["hermes"].parser(TOOLS, lambda: "id", False)
        parser = ThinkParser(("<think>", "</think>"), inner, begun=begun)
        deltas = [delta for piece in pieces for delta in parser.push(piece)]
        return ParsedAnswer.joined([*deltas, *parser.finish(cut=cut)])

    whole = parsed([text])
    assert parsed(text) == whole
    assert parsed([text[start:stop] for start, stop in itertools.pairwise([0, *cuts, len(text)])]) == whole


def test_plain_answers() -> None:
    parser = PlainParser()
    assert [parser.push("<tool_call>"), parser.push(""), parser.finish()] == [[TextDelta("<tool_call>")], [], []]


def test_names_of_calls() -> None:
    assert {len(short_id()) for _ in range(9)} == {9}
    assert len({long_id() for _ in range(9)}) == 9
    assert long_id().startswith("call_")


def test_doctests() -> None:
    for module in (_cut_json, _deltas, _scan):
        result = doctest.testmod(module)
        assert result.attempted
        assert not result.failed


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize(
    "text",
    [
        "[TOOL_CALLS]get_weather[CALL_ID]{1b2c3d4e[ARGS]{}",
        f"[TOOL_CALLS]{'get_weather'.ljust(100)}[ARGS]{{}}",
        f"[TOOL_CALLS]{'get_weather'.ljust(101)}[ARGS]{{}}",
    ],
)
def test_a_head_is_a_name_or_text_however_it_comes(text: str, streamed: bool) -> None:
    """A head with a brace, or of more than 100 characters, was text in pieces and a call as a whole."""
    form = _FORMATS["mistral-args"]
    whole = _parsed(form, [text], streamed)
    assert len(whole.calls) == (len(text.partition("[ARGS]")[0]) == len("[TOOL_CALLS]") + 100)
    assert whole.text == ("" if whole.calls else text)
    for place in range(len(text)):
        assert _parsed(form, [text[:place], text[place:]], streamed) == whole
    assert _parsed(form, text, streamed) == whole
