"""Formats and tools: answers of a model that says anything else, held to what was asked for."""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from tapeline.server._models import ModelSource
from tapeline.server._script_slots_testing import ScriptSlots
from tapeline.server._server_testing import VOCABULARY, Answered, RunningServer, running, text_model

SCHEMA = {
    "type": "object",
    "properties": {"city": {"enum": ["Paris", "Rome"]}, "days": {"type": "integer", "minimum": 1, "maximum": 9}},
    "required": ["city", "days"],
    "additionalProperties": False,
}
BROKEN = {"name": "b", "arguments": "{"}
TOOL = {"type": "function", "function": {"name": "weather", "description": "Tells it.", "parameters": SCHEMA}}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    directory = tmp_path_factory.mktemp("model")
    slots = ScriptSlots([7] * 1024, VOCABULARY)
    with running([ModelSource("demo", lambda: text_model(directory, slots))]) as server:
        yield server


def chat(server: RunningServer, **fields: Any) -> Answered:
    hello = [{"role": "user", "content": "Hello"}]
    return server.request("/v1/chat/completions", {"messages": hello, "temperature": 0, "max_tokens": 60, **fields})


def message(answered: Answered) -> Any:
    assert answered.status == 200, answered.body
    return answered.json["choices"][0]["message"]


def test_an_answer_satisfies_its_schema(server: RunningServer) -> None:
    form = {"type": "json_schema", "json_schema": {"name": "trip", "schema": SCHEMA, "strict": True}}
    answered = chat(server, response_format=form)
    trip = json.loads(message(answered)["content"])
    assert trip["city"] in ("Paris", "Rome")
    assert 1 <= trip["days"] <= 9
    assert answered.json["choices"][0]["finish_reason"] == "stop"


def test_other_formats(server: RunningServer) -> None:
    assert message(chat(server, structured_outputs={"choice": ["yes", "no"]}))["content"] in ("yes", "no")
    assert re.fullmatch("[ab]{5}", message(chat(server, structured_outputs={"regex": "[ab]{5}"}))["content"])
    text = message(chat(server, structured_outputs={"json": json.dumps(SCHEMA)}))["content"]
    assert set(json.loads(text)) == {"city", "days"}
    completion = server.request(
        "/v1/completions",
        {"prompt": "a", "n": 2, "temperature": 0, "structured_outputs": {"grammar": 'start: "x" "y"'}},
    )
    assert [choice["text"] for choice in completion.json["choices"]] == ["xy", "xy"]


def test_a_demanded_call_is_one(server: RunningServer) -> None:
    fields: dict[str, Any] = {
        "tools": [TOOL],
        "tool_choice": "required",
        "parallel_tool_calls": False,
        "max_tokens": 200,
    }
    answered = chat(server, **fields)
    (call,) = message(answered)["tool_calls"]
    assert call["function"]["name"] == "weather"
    arguments = json.loads(call["function"]["arguments"])
    assert set(arguments) == {"city", "days"}
    assert message(answered)["content"] is None
    assert answered.json["choices"][0]["finish_reason"] == "tool_calls"
    events = chat(server, stream=True, **fields).events[:-1]
    deltas = [call for event in events for call in event["choices"][0]["delta"].get("tool_calls", ())]
    assert deltas[0]["function"]["name"] == "weather"
    assert deltas[0]["function"]["arguments"]  # its beginning: some clients read the first growth of an event alone
    assert len(deltas) == sum("tool_calls" in event["choices"][0]["delta"] for event in events)
    assert [event for event in events[1:-1] if not event["choices"][0]["delta"]] == []
    assert "".join(delta["function"]["arguments"] for delta in deltas) == call["function"]["arguments"]
    assert events[-1]["choices"][0]["finish_reason"] == "tool_calls"


def test_a_conversation_goes_on_behind_a_call(server: RunningServer) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Rome"}'}}
    messages = [
        {"role": "user", "content": "Hello"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": "sunny"}]},
    ]
    assert message(chat(server, messages=messages, tools=[TOOL], tool_choice="none", max_tokens=3))


@pytest.mark.parametrize(
    ("fields", "param", "said"),
    [
        ({"tools": [{}]}, "tools[0]", "tools[0]: expected a tool of type function"),
        ({"tools": [TOOL, TOOL]}, "tools", "two are called 'weather'"),
        ({"tools": [TOOL] * 129}, "tools", "expected at most 128; found 129"),
        ({"tools": [{**TOOL, "x": "a" * 200_000}]}, "tools[0]", "expected at most 131072 bytes"),
        ({"tools": [TOOL], "tool_choice": "some"}, "tool_choice", "tool_choice"),
        ({"tool_choice": "required"}, "tool_choice", "'required' needs `tools`"),
        ({"response_format": {"type": "xml"}}, "response_format.type", 'found "xml"'),
        ({"response_format": {"type": "json_schema"}}, "response_format.json_schema", "which needs it"),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"schema": {"type": "thing"}}}},
            "response_format.json_schema.schema",
            "thing",
        ),
        ({"structured_outputs": {"regex": "a", "choice": ["b"]}}, "structured_outputs", "found 2"),
        ({"structured_outputs": {"regex": "("}}, "structured_outputs.regex", "regex"),
        (
            {"structured_outputs": {"regex": "a"}, "response_format": {"type": "json_object"}},
            "structured_outputs",
            "give this or response_format",
        ),
        (
            {
                "messages": [
                    {"role": "assistant", "tool_calls": [{"id": "a", "function": {"name": "b", "arguments": "b"}}]}
                ]
            },
            "messages[0].tool_calls[0].function.arguments",
            "expected JSON in a string",
        ),
        ({"chat_template_kwargs": {"messages": 1}}, "chat_template_kwargs.messages", "gets this from the server"),
    ],
)
def test_refusals(server: RunningServer, fields: dict[str, Any], param: str, said: str) -> None:
    answered = chat(server, **fields)
    assert answered.status == 400
    assert said in answered.error["message"]
    assert answered.error["param"] == param


@pytest.mark.parametrize(
    "part",
    [
        {"type": "integer", "format": "int32", "minimum": 0, "maximum": 9},
        {"type": "string", "format": "path", "maxLength": 3},
        {"type": "string", "format": "binary", "maxLength": 3},
        {"type": "string", "nullable": True, "maxLength": 3},
        {"type": "array", "items": {"enum": ["a"]}, "maxItems": 2, "uniqueItems": True},
        {"type": "object", "propertyNames": {"enum": ["a"]}, "additionalProperties": {"const": 1}},
        {"anyOf": [{"const": 1}, {"type": "string", "pattern": r"^(?!^[-+.]*$)[+-]?0*\d*\.?\d*$"}]},
        {"oneOf": [{"type": "integer", "minimum": 0, "maximum": 9}, {"const": 2}]},
    ],
)
def test_schemas_of_clients_are_taken(server: RunningServer, part: Any) -> None:
    schema = {"type": "object", "properties": {"x": part}, "required": ["x"]}
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    answered = chat(server, response_format=form)
    assert list(json.loads(message(answered)["content"])) == ["x"]
    loosened = answered.headers.get("x-ignored-fields")
    place = "response_format.json_schema.schema#/properties/x/"
    assert loosened == (
        f"{place}{'oneOf' if 'oneOf' in part else 'uniqueItems'}" if "oneOf" in part or "items" in part else None
    )
    tool = {"type": "function", "function": {"name": "w", "parameters": schema}}
    called = chat(server, tools=[tool], tool_choice="required", parallel_tool_calls=False)
    (call,) = message(called)["tool_calls"]
    assert list(json.loads(call["function"]["arguments"])) == ["x"]
    assert ("x-ignored-fields" in called.headers) == (loosened is not None)


def test_an_answer_of_numbers_ends(server: RunningServer) -> None:
    for schema in (
        {"type": "number"},
        {"type": "integer"},
        {"type": "array", "items": {"type": "number"}, "maxItems": 2},
    ):
        form = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
        answered = chat(
            server, response_format=form, max_tokens=200, logit_bias={str(token): 20 for token in _digits(server)}
        )
        assert answered.json["choices"][0]["finish_reason"] == "stop", answered.body
        json.loads(message(answered)["content"])


def _digits(server: RunningServer) -> list[int]:
    return server.request("/tokenize", {"prompt": "0123456789", "add_special_tokens": False}).json["tokens"]


def test_errors_of_schemas_name_the_field(server: RunningServer) -> None:
    bad = {"type": "object", "properties": {"x": {"type": "integer", "not": {}}}}
    tools = [TOOL, {"type": "function", "function": {"name": "w", "parameters": bad}}]
    refused = chat(server, tools=tools, tool_choice="required")
    assert refused.error["param"] == "tools[1].function.parameters"
    assert "tools[1].function.parameters at #/properties/x: keyword 'not'" in refused.error["message"]
    named = chat(server, tools=tools, tool_choice={"type": "function", "function": {"name": "w"}})
    assert named.error["param"] == "tools[1].function.parameters"
    for fields, param in (
        (
            {"response_format": {"type": "json_schema", "json_schema": {"schema": bad}}},
            "response_format.json_schema.schema",
        ),
        ({"structured_outputs": {"json": bad}}, "structured_outputs.json"),
        ({"structured_outputs": {"regex": "("}}, "structured_outputs.regex"),
        ({"guided_json": bad}, "guided_json"),
        ({"tools": [TOOL], "response_format": {"type": "json_object", "schema": bad}}, "response_format.schema"),
    ):
        refused = chat(server, **fields)
        assert (refused.status, refused.error["param"]) == (400, param), refused.body


def test_tools_go_with_a_format(server: RunningServer) -> None:
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}}
    strict = {**TOOL, "function": {**TOOL["function"], "strict": True}}
    answered = message(chat(server, tools=[strict], response_format=form, max_tokens=300))
    said = answered["content"]
    arguments = said if said else answered["tool_calls"][0]["function"]["arguments"]
    assert set(json.loads(arguments)) == {"city", "days"}
