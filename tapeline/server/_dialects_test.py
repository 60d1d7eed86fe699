"""Conversations in the APIs of Anthropic's messages and OpenAI's responses."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tapeline.server._errors import RequestError
from tapeline.server._models import ModelSource
from tapeline.server._options import ServerOptions
from tapeline.server._response_store import ResponseStore, StoredResponse
from tapeline.server._script_slots_testing import ScriptSlots
from tapeline.server._scripted_server_testing import HELLO, script_tokens
from tapeline.server._server_testing import VOCABULARY, Answered, RunningServer, running, text_model

__all__ = ["script_tokens"]  # a fixture

_SCHEMA = {
    "type": "object",
    "properties": {"city": {"const": "Rome"}},
    "required": ["city"],
    "additionalProperties": False,
}
_MESSAGES = "/v1/messages"
_RESPONSES = "/v1/responses"
_KEY = "secret"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, script: list[int]) -> Iterator[RunningServer]:
    model = text_model(tmp_path_factory.mktemp("model"), ScriptSlots(script * 6, VOCABULARY))
    with running([ModelSource("demo", lambda: model)]) as started:
        yield started


@pytest.fixture(scope="module")
def keyed(tmp_path_factory: pytest.TempPathFactory, script: list[int]) -> Iterator[RunningServer]:
    model = text_model(tmp_path_factory.mktemp("keyed"), ScriptSlots(script * 6, VOCABULARY))
    options = ServerOptions(port=0, api_keys=(_KEY, "other"))
    with running([ModelSource("demo", lambda: model)], options) as started:
        yield started


def say(server: RunningServer, **fields: Any) -> Answered:
    body = {"model": "demo", "messages": HELLO, "max_tokens": 40, "temperature": 0, **fields}
    return server.request(_MESSAGES, {name: value for name, value in body.items() if value is not None})


def respond(server: RunningServer, **fields: Any) -> Answered:
    return server.request(
        _RESPONSES, {"model": "demo", "input": "Hello", "max_output_tokens": 40, "temperature": 0, **fields}
    )


def chat(server: RunningServer, **fields: Any) -> Any:
    body = {"model": "demo", "messages": HELLO, "max_tokens": 40, "temperature": 0, **fields}
    return server.request("/v1/chat/completions", body).json


def events_of(answered: Answered) -> list[Any]:
    """Returns the events of a stream, each of which has its type as its name."""
    assert answered.status == 200, answered.body
    events: list[Any] = []
    for block in answered.body.decode().strip().split("\n\n"):
        name, data = block.split("\n")
        events.append(json.loads(data.removeprefix("data: ")))
        assert name == f"event: {events[-1]['type']}"
    return events


def test_a_message_is_the_answer_of_a_chat(server: RunningServer) -> None:
    expected = chat(server)
    body = say(server).json
    assert body["content"] == [{"type": "text", "text": expected["choices"][0]["message"]["content"]}]
    assert (body["type"], body["role"], body["model"]) == ("message", "assistant", "demo")
    assert (body["stop_reason"], body["stop_sequence"]) == ("max_tokens", None)
    usage = body["usage"]
    assert usage["input_tokens"] + usage["cache_read_input_tokens"] == expected["usage"]["prompt_tokens"]
    assert usage["output_tokens"] == 40


def test_a_streamed_message_has_the_events_of_anthropic(server: RunningServer) -> None:
    whole = say(server).json
    events = events_of(say(server, stream=True))
    kinds = [event["type"] for event in events]
    assert kinds[:2] == ["message_start", "content_block_start"]
    assert kinds[-3:] == ["content_block_stop", "message_delta", "message_stop"]
    assert set(kinds[2:-3]) == {"content_block_delta"}
    assert events[0]["message"]["content"] == []
    assert "".join(event["delta"]["text"] for event in events[2:-3]) == whole["content"][0]["text"]
    assert events[-2]["delta"] == {"stop_reason": "max_tokens", "stop_sequence": None}
    assert events[-2]["usage"]["output_tokens"] == 40


def test_more_tokens_than_fit_into_the_context(server: RunningServer) -> None:
    """Anthropic's API must be told a number, and clients send the largest that any of its models has."""
    body = say(server, max_tokens=128_000).json
    assert body["stop_reason"] == "model_context_window_exceeded"
    prompt = body["usage"]["input_tokens"] + body["usage"]["cache_read_input_tokens"]
    context = server.request("/v1/models/demo").json["max_model_len"]
    assert prompt + body["usage"]["output_tokens"] == context + 1
    events = events_of(say(server, max_tokens=128_000, stream=True))
    assert events[-2]["delta"]["stop_reason"] == "model_context_window_exceeded"
    long = say(server, max_tokens=128_000, messages=[{"role": "user", "content": "a" * 5000}])
    assert (long.status, "context is" in long.error["message"]) == (400, True)


def test_a_stop_sequence_is_named(server: RunningServer) -> None:
    text = say(server).json["content"][0]["text"]
    stop = text[10:14]
    body = say(server, stop_sequences=["never", stop]).json
    assert (body["stop_reason"], body["stop_sequence"]) == ("stop_sequence", stop)
    assert body["content"][0]["text"] == text[: text.index(stop)]
    tool = {"name": "w", "input_schema": _SCHEMA}
    stop = say(server, tools=[tool]).json["content"][0]["text"][10:14]
    with_tools = say(server, stop_sequences=["never", stop], tools=[tool]).json
    assert (with_tools["stop_reason"], with_tools["stop_sequence"]) == ("stop_sequence", stop)


def test_tools_of_anthropic(server: RunningServer) -> None:
    tool = {"name": "w", "description": "Tells it.", "input_schema": _SCHEMA, "cache_control": {"type": "ephemeral"}}
    choice = {"type": "any", "disable_parallel_tool_use": True}
    fields: dict[str, Any] = {"tools": [tool], "tool_choice": choice, "max_tokens": 120}
    body = say(server, **fields).json
    (block,) = body["content"]
    assert (block["type"], block["name"], block["input"]) == ("tool_use", "w", {"city": "Rome"})
    assert body["stop_reason"] == "tool_use"
    events = events_of(say(server, **fields, stream=True))
    (start,) = [event for event in events if event["type"] == "content_block_start"]
    assert start["content_block"] == {"type": "tool_use", "id": start["content_block"]["id"], "name": "w", "input": {}}
    pieces = [event["delta"]["partial_json"] for event in events if event["type"] == "content_block_delta"]
    assert json.loads("".join(pieces)) == {"city": "Rome"}
    assert events[-2]["delta"]["stop_reason"] == "tool_use"
    result = {"type": "tool_result", "tool_use_id": block["id"], "content": [{"type": "text", "text": "sunny"}]}
    messages = [
        *HELLO,
        {"role": "assistant", "content": body["content"]},
        {"role": "user", "content": [result, {"type": "text", "text": "And?"}]},
    ]
    call = {"id": block["id"], "type": "function", "function": {"name": "w", "arguments": '{"city": "Rome"}'}}
    said = [
        *HELLO,
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": block["id"], "content": "sunny"},
        {"role": "user", "content": "And?"},
    ]
    function = {"type": "function", "function": {"name": "w", "description": "Tells it.", "parameters": _SCHEMA}}
    expected = chat(server, messages=said, tools=[function])["usage"]["prompt_tokens"]
    counted = server.request("/v1/messages/count_tokens", {"messages": messages, "tools": [tool]}).json
    assert counted == {"input_tokens": expected}
    named = say(server, **{**fields, "tool_choice": {"type": "tool", "name": "w"}}).json
    assert named["content"][0]["name"] == "w"


def test_system_prefill_and_thinking_of_anthropic(server: RunningServer) -> None:
    system = [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}]
    said = [{"role": "system", "content": "Be brief."}, *HELLO]
    expected = chat(server, messages=said)["usage"]["prompt_tokens"]
    count = server.request("/v1/messages/count_tokens", {"messages": HELLO, "system": system}).json
    assert count["input_tokens"] == expected
    prefilled = [*HELLO, {"role": "assistant", "content": "It was"}]
    plain = chat(server, messages=prefilled, continue_final_message=True)
    assert say(server, messages=prefilled).json["content"][0]["text"] == plain["choices"][0]["message"]["content"]
    thinking = say(server, thinking={"type": "enabled", "budget_tokens": 1024})
    assert thinking.headers["x-ignored-fields"] == "enable_thinking, thinking_token_budget"
    assert say(server, thinking={"type": "adaptive"}).status == 200
    form = {"type": "json_schema", "schema": _SCHEMA}
    for fields in ({"output_config": {"format": form}}, {"output_format": form}):
        assert json.loads(say(server, **fields, max_tokens=80).json["content"][0]["text"]) == {"city": "Rome"}


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"max_tokens": None}, "max_tokens: this field is required"),
        ({"messages": []}, "messages: expected a list of at least 1"),
        ({"tool_choice": {"type": "tool"}}, "tool_choice.name: goes with the type tool"),
        (
            {"messages": [{"role": "user", "content": [{"type": "document"}]}]},
            "document is not supported: send its text",
        ),
        (
            {"messages": [{"role": "user", "content": [{"type": "tool_use", "id": "a", "name": "b", "input": {}}]}]},
            "messages[0].content[0]: goes with the role assistant",
        ),
        ({"tools": [{"type": "web_search_20250305", "name": "w"}]}, "tools[0].type: expected custom"),
    ],
)
def test_refusals_of_anthropic(server: RunningServer, fields: Any, message: str) -> None:
    answered = say(server, **fields)
    assert answered.status == 400
    assert answered.json["type"] == "error"
    assert message in answered.error["message"]
    assert answered.error["type"] == "invalid_request_error"


def test_keys_of_anthropic(keyed: RunningServer) -> None:
    body = {"model": "demo", "messages": HELLO, "max_tokens": 2}
    assert keyed.request(_MESSAGES, body).status == 401
    assert keyed.request(_MESSAGES, body, headers={"x-api-key": "wrong"}).status == 401
    assert keyed.request(_MESSAGES, body, headers={"x-api-key": _KEY}).status == 200
    both = {"x-api-key": _KEY, "authorization": "Bearer wrong"}
    assert keyed.request(_MESSAGES, body, headers=both).status == 401


def test_a_response_is_the_answer_of_a_chat(server: RunningServer) -> None:
    expected = chat(server)
    body = respond(server).json
    (item,) = body["output"]
    text = expected["choices"][0]["message"]["content"]
    assert item["content"] == [{"type": "output_text", "text": text, "annotations": []}]
    assert (body["object"], body["status"]) == ("response", "incomplete")
    assert body["incomplete_details"] == {"reason": "max_output_tokens"}
    assert body["usage"]["output_tokens"] == 40
    assert body["usage"]["input_tokens"] == expected["usage"]["prompt_tokens"]
    listed = [{"role": "user", "content": [{"type": "input_text", "text": "Hello"}]}]
    assert respond(server, input=listed).json["output"][0]["content"] == item["content"]


@pytest.mark.parametrize(
    "fields",
    [
        {"stop": "worst"},
        {"stop": ["zzz", "worst"], "min_tokens": 2},
        {"ignore_eos": True, "seed": 3, "stop_token_ids": [5]},
        {"temperature": 1.5, "seed": 3, "top_k": 3, "min_p": 0.01, "repetition_penalty": 1.3},
        {"presence_penalty": 2, "frequency_penalty": 2, "logit_bias": {"7": -50}, "cache_salt": "x"},
    ],
)
def test_sampling_of_a_response_is_that_of_a_chat(server: RunningServer, fields: dict[str, Any]) -> None:
    answered = respond(server, **fields)
    assert "x-ignored-fields" not in answered.headers
    expected = chat(server, **fields)["choices"][0]
    assert answered.json["output"][0]["content"][0]["text"] == expected["message"]["content"]
    assert answered.json["status"] == {"stop": "completed", "length": "incomplete"}[expected["finish_reason"]]


def test_a_streamed_response_has_the_events_of_openai(server: RunningServer) -> None:
    whole = respond(server).json
    events = events_of(respond(server, stream=True))
    kinds = [event["type"] for event in events]
    assert kinds[:4] == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
    ]
    assert kinds[-4:] == [
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.incomplete",
    ]
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    deltas = [event["delta"] for event in events if event["type"] == "response.output_text.delta"]
    text = whole["output"][0]["content"][0]["text"]
    assert "".join(deltas) == text == events[-4]["text"]
    assert events[-1]["response"]["output"][0]["content"] == whole["output"][0]["content"]
    assert {event["item_id"] for event in events if "item_id" in event} == {events[2]["item"]["id"]}


def test_tools_and_formats_of_responses(server: RunningServer) -> None:
    tool = {"type": "function", "name": "w", "parameters": _SCHEMA, "strict": True}
    fields: dict[str, Any] = {"tools": [tool], "tool_choice": "required", "parallel_tool_calls": False}
    body = respond(server, **fields, max_output_tokens=120).json
    (call,) = body["output"]
    assert (call["type"], call["name"], json.loads(call["arguments"])) == ("function_call", "w", {"city": "Rome"})
    assert body["status"] == "completed"
    assert body["tools"] == [tool]
    events = events_of(respond(server, **fields, max_output_tokens=120, stream=True))
    deltas = [event["delta"] for event in events if event["type"] == "response.function_call_arguments.delta"]
    assert json.loads("".join(deltas)) == {"city": "Rome"}
    (done,) = [event for event in events if event["type"] == "response.function_call_arguments.done"]
    assert json.loads(done["arguments"]) == {"city": "Rome"}
    items = [
        {"role": "user", "content": "Hello"},
        {"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": "Hm."}]},
        call,
        {"type": "function_call_output", "call_id": call["call_id"], "output": "sunny"},
    ]
    assert respond(server, input=items, tools=[tool]).status == 200
    form = {"format": {"type": "json_schema", "name": "x", "schema": _SCHEMA, "strict": True}}
    text = respond(server, text=form, max_output_tokens=80).json["output"][0]["content"][0]["text"]
    assert json.loads(text) == {"city": "Rome"}
    named = respond(server, **{**fields, "tool_choice": {"type": "function", "name": "w"}}, max_output_tokens=120)
    assert named.json["output"][0]["name"] == "w"


def test_a_response_goes_on_from_another(server: RunningServer) -> None:
    first = respond(server, instructions="Be brief.").json
    text = first["output"][0]["content"][0]["text"]
    second = respond(server, input="And?", previous_response_id=first["id"]).json
    messages = [*HELLO, {"role": "assistant", "content": text}, {"role": "user", "content": "And?"}]
    assert second["usage"]["input_tokens"] == chat(server, messages=messages)["usage"]["prompt_tokens"]
    streamed = events_of(respond(server, input="And?", previous_response_id=second["id"], stream=True))
    third = respond(server, input="So?", previous_response_id=streamed[-1]["response"]["id"])
    assert third.status == 200
    assert server.request(f"{_RESPONSES}/{first['id']}").json == first
    assert server.request(f"{_RESPONSES}/{first['id']}", method="DELETE").json["deleted"]
    gone = respond(server, previous_response_id=first["id"])
    assert (gone.status, gone.error["code"]) == (404, "response_not_found")
    unstored = respond(server, store=False).json
    assert respond(server, previous_response_id=unstored["id"]).status == 404


def test_a_stored_response_is_its_clients_alone(keyed: RunningServer) -> None:
    def ask(key: str, **fields: Any) -> Answered:
        body = {"input": "Hello", "max_output_tokens": 2, **fields}
        return keyed.request(_RESPONSES, body, headers={"authorization": f"Bearer {key}"})

    name = ask(_KEY).json["id"]
    assert ask("other", previous_response_id=name).status == 404
    assert ask(_KEY, previous_response_id=name).status == 200


def test_the_store_is_bounded() -> None:
    store = ResponseStore(most=3, most_bytes=10_000)
    for index in range(5):
        store.put(StoredResponse(str(index), "a", [], {}))
    for name in ("0", "1"):
        with pytest.raises(RequestError, match="no such response is stored"):
            store.get(name, "a")
    assert store.get("2", "a").name == "2"
    store.put(StoredResponse("5", "a", [], {}))  # the one used least lately goes
    with pytest.raises(RequestError):
        store.get("3", "a")
    store.put(StoredResponse("6", "a", [{"content": "x" * 9_975}], {}))
    assert store.get("6", "a")
    with pytest.raises(RequestError):
        store.get("5", "a")
    store.put(StoredResponse("7", "a", [{"content": "x" * 20_000}], {}))
    with pytest.raises(RequestError):
        store.get("7", "a")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"input": []}, "input"),
        ({"input": [{"type": "item_reference", "id": "a"}]}, "item_reference is not supported: send the item itself"),
        ({"tools": [{"type": "web_search"}]}, "tools[0].type"),
        ({"conversation": "c"}, "conversation: not supported: give previous_response_id"),
        ({"background": True}, "background: expected false"),
    ],
)
def test_refusals_of_responses(server: RunningServer, fields: Any, message: str) -> None:
    answered = respond(server, **fields)
    assert answered.status == 400
    assert message in answered.error["message"]
