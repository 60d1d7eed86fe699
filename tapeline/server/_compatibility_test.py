"""Fields that clients send: accepted, honoured, or named in a header."""

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tapeline.server._constraints import HeldAnswer, ThinkingLimit
from tapeline.server._models import ModelSource
from tapeline.server._options import ServerOptions
from tapeline.server._records import read_record
from tapeline.server._requests import ChatRequest
from tapeline.server._script_slots_testing import ScriptSlots
from tapeline.server._scripted_server_testing import (
    HELLO,
    TEXT,
    chat,
    complete,
    script_tokens,
    scripted_server,
)
from tapeline.server._server_testing import VOCABULARY, Answered, RunningServer, running, text_model
from tapeline.server._thinking import thinking_plan
from tapeline.text import ChatTemplate, Tokenizer
from tapeline.toolcalls import ToolSupport

__all__ = ["script_tokens", "scripted_server"]  # fixtures

_CALL = {"id": "c", "type": "function", "function": {"name": "w", "arguments": "{}"}}
_TOOL = {"type": "function", "function": {"name": "w", "parameters": {"type": "object"}}}


def content(answered: Answered) -> str:
    assert answered.status == 200, answered.body
    return answered.json["choices"][0]["message"]["content"]


def prompt_text(server: RunningServer, messages: Any, **fields: Any) -> str:
    """Returns the text of the prompt that a conversation has."""
    answered = chat(server, messages=messages, max_tokens=1, return_token_ids=True, **fields)
    assert answered.status == 200, answered.body
    tokens = answered.json["prompt_token_ids"]
    return server.request("/detokenize", {"model": "demo", "tokens": tokens}).json["prompt"]


@pytest.fixture(scope="module")
def strict(tmp_path_factory: pytest.TempPathFactory, script: list[int]) -> Iterator[RunningServer]:
    model = text_model(tmp_path_factory.mktemp("strict"), ScriptSlots(script, VOCABULARY))
    with running([ModelSource("demo", lambda: model)], ServerOptions(port=0, strict_fields=True)) as started:
        yield started


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory, script: list[int]) -> Iterator[RunningServer]:
    model = text_model(tmp_path_factory.mktemp("tools"), ScriptSlots(script * 4, VOCABULARY))
    with running([ModelSource("demo", lambda: model)]) as started:
        yield started


@pytest.mark.parametrize(
    "message",
    [
        {"role": "assistant", "content": "b", "reasoning_content": "think"},
        {"role": "assistant", "content": "b", "reasoning_content": None, "reasoning": None},
        {"role": "assistant", "content": []},
        {"role": "assistant", "content": None},
        {"role": "assistant", "content": "b", "annotations": [], "id": "msg_1", "refusal": None, "audio": None},
        {"role": "assistant", "content": "b", "parsed": {"a": 1}, "function_call": None, "provider_fields": None},
        {"role": "assistant", "content": None, "refusal": "no"},
        {
            "role": "assistant",
            "content": [{"type": "thinking", "thinking": "hm"}, {"type": "output_text", "text": "b"}],
        },
        {"role": "assistant", "content": None, "tool_calls": [{"index": 0, **_CALL}]},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"function": {"name": "w", "arguments": {"x": 1}, "parsed_arguments": {"x": 1}}}],
        },
        {"role": "user", "content": [{"type": "text", "text": "x", "cache_control": {"type": "ephemeral"}}]},
        {"role": "tool", "tool_call_id": "c", "content": None},
        {"role": "tool", "tool_call_id": "c", "content": []},
    ],
)
def test_messages_that_clients_send_back(server: RunningServer, strict: RunningServer, message: Any) -> None:
    messages = [*HELLO, message, {"role": "user", "content": "c"}]
    for one in (server, strict):
        answered = chat(one, messages=messages, max_tokens=2)
        assert answered.status == 200, answered.body
        assert "x-ignored-fields" not in answered.headers


def test_unknown_fields_are_named_in_a_header_and_counted(server: RunningServer, strict: RunningServer) -> None:
    fields = {
        "messages": [{"role": "user", "content": "a", "mood": "good"}, {"role": "user", "content": "b", "mood": 1}],
        "top_a": 0.5,
        "kv_transfer_params": None,
        "b\u00e9d\r\n": 1,
    }
    counter = 'tapeline:ignored_fields_total{route="/v1/chat/completions"}'

    def count() -> float:
        lines = server.request("/metrics").body.decode().splitlines()
        return next((float(line.split()[1]) for line in lines if line.startswith(counter)), 0.0)

    before = count()
    answered = chat(server, max_tokens=2, **fields)
    assert answered.status == 200
    assert answered.headers["x-ignored-fields"] == "top_a, b?d??, messages[].mood"
    assert count() == before + 4
    assert chat(server, max_tokens=2, stream=True, top_a=1).headers["x-ignored-fields"] == "top_a"
    assert "mood" not in server.log.getvalue()
    refused = chat(strict, max_tokens=2, **fields)
    assert (refused.status, refused.error["code"]) == (400, "unknown_parameter")
    many = chat(server, max_tokens=2, **{f"field_{index}": index for index in range(100)})
    assert len(many.headers["x-ignored-fields"].split(", ")) == 16


def test_fields_without_a_meaning_here_are_accepted(server: RunningServer, strict: RunningServer) -> None:
    fields: dict[str, Any] = {
        "service_tier": "auto",
        "store": True,
        "safety_identifier": "u",
        "prompt_cache_key": "k",
        "modalities": ["text"],
        "functions": [],
        "function_call": "auto",
        "stop": "",
        "stream_options": {},
        "skip_special_tokens": True,
        "cache_prompt": True,
        "max_tokens": 4,
    }
    for one in (server, strict):
        answered = chat(one, **fields)
        assert content(answered) == content(chat(one, max_tokens=4))
        assert "x-ignored-fields" not in answered.headers


def test_a_field_that_the_model_cannot_honour_is_named(server: RunningServer, strict: RunningServer) -> None:
    fields = {"reasoning_effort": "low", "enable_thinking": False, "thinking_token_budget": 3}
    answered = chat(server, max_tokens=2, **fields)
    assert answered.headers["x-ignored-fields"] == "reasoning_effort, enable_thinking, thinking_token_budget"
    for name, value in fields.items():
        assert chat(strict, max_tokens=2, **{name: value}).error["param"] == name


def test_max_tokens_of_minus_one_is_all_that_fits(server: RunningServer) -> None:
    whole = complete(server, prompt="a").json["usage"]["completion_tokens"]
    assert whole == 16
    everything = complete(server, prompt="a", max_tokens=-1)
    context = server.request("/v1/models/demo").json["max_model_len"]
    used = everything.json["usage"]
    assert used["total_tokens"] == context + 1
    assert chat(server, max_tokens=-1).json["usage"]["total_tokens"] == context + 1


def test_a_stop_string_may_be_kept(server: RunningServer) -> None:
    without = content(chat(server, max_tokens=80, stop="END"))
    whole = chat(server, max_tokens=80, stop="END", include_stop_str_in_output=True)
    pieces = chat(server, max_tokens=80, stop="END", include_stop_str_in_output=True, stream=True)
    streamed = "".join(event["choices"][0]["delta"].get("content", "") for event in pieces.events[:-1])
    assert content(whole) == streamed == f"{without}END"
    text = complete(server, prompt="a", max_tokens=80, stop="END", include_stop_str_in_output=True)
    assert text.json["choices"][0]["text"].endswith("END")


def test_min_tokens_keeps_stop_strings_and_ends_from_ending(server: RunningServer, script: list[int]) -> None:
    first = script[2]
    short = complete(server, prompt="a", max_tokens=20, stop_token_ids=[first])
    held = complete(server, prompt="a", max_tokens=20, stop_token_ids=[first], min_tokens=9)
    assert short.json["usage"]["completion_tokens"] < 9 <= held.json["usage"]["completion_tokens"]
    text = complete(server, prompt="a", max_tokens=20).json["choices"][0]["text"]
    early = complete(server, prompt="a", max_tokens=20, stop=text[1:3])
    late = complete(server, prompt="a", max_tokens=20, stop=text[1:3], min_tokens=20)
    assert early.json["choices"][0]["text"] == text[: text.index(text[1:3])]
    assert late.json["choices"][0]["text"] == text


def test_token_ids_come_with_the_text(server: RunningServer) -> None:
    whole = complete(server, prompt="It was", max_tokens=9, return_token_ids=True).json["choices"][0]
    cut = server.request("/tokenize", {"model": "demo", "prompt": "It was"}).json["tokens"]
    assert whole["prompt_token_ids"] == cut
    assert len(whole["token_ids"]) == 9
    text = server.request("/detokenize", {"model": "demo", "tokens": whole["token_ids"]}).json["prompt"]
    assert text.strip() == whole["text"].strip()
    events = complete(server, prompt="It was", max_tokens=9, return_token_ids=True, stream=True).events[:-1]
    choices = [event["choices"][0] for event in events]
    assert [token for choice in choices for token in choice["token_ids"]] == whole["token_ids"]
    assert ["prompt_token_ids" in choice for choice in choices] == [True] + [False] * (len(choices) - 1)
    said = chat(server, max_tokens=9, return_token_ids=True).json
    pieces = chat(server, max_tokens=9, return_token_ids=True, stream=True).events[:-1]
    assert pieces[0]["prompt_token_ids"] == said["prompt_token_ids"]
    ids = [token for event in pieces for token in event["choices"][0]["token_ids"]]
    assert ids == said["choices"][0]["token_ids"]
    assert len(ids) == 9


def test_usage_comes_with_every_event(server: RunningServer) -> None:
    options = {"include_usage": True, "continuous_usage_stats": True}
    for events in (
        complete(server, prompt="a", max_tokens=5, stream=True, stream_options=options).events[:-1],
        chat(server, max_tokens=5, stream=True, stream_options=options).events[:-1],
    ):
        counts = [event["usage"]["completion_tokens"] for event in events]
        assert counts == sorted(counts)
        assert counts[-1] == 5
        assert all(event["usage"]["prompt_tokens"] == events[-1]["usage"]["prompt_tokens"] for event in events)
        assert len(set(counts)) > 2


def test_the_last_message_goes_on(server: RunningServer) -> None:
    messages = [*HELLO, {"role": "assistant", "content": "It was "}]
    assert prompt_text(server, messages, continue_final_message=True) == "[user]Hello[assistant]It was "
    fields = {"continue_final_message": True, "add_generation_prompt": False}
    assert prompt_text(server, messages, **fields) == "[user]Hello[assistant]It was "


def test_a_prompt_may_be_truncated(server: RunningServer) -> None:
    whole = complete(server, prompt=TEXT, max_tokens=1, return_token_ids=True).json["choices"][0]["prompt_token_ids"]
    cut = complete(server, prompt=TEXT, max_tokens=1, truncate_prompt_tokens=5, return_token_ids=True)
    assert cut.json["choices"][0]["prompt_token_ids"] == whole[-5:]
    assert cut.json["usage"]["prompt_tokens"] == 5
    context = server.request("/v1/models/demo").json["max_model_len"]
    long = TEXT * 40
    assert complete(server, prompt=long, max_tokens=3).status == 400
    fitted = complete(server, prompt=long, max_tokens=3, truncate_prompt_tokens=-1)
    assert fitted.json["usage"]["prompt_tokens"] == context + 1 - 3
    said = chat(server, messages=[{"role": "user", "content": long}], max_tokens=3, truncate_prompt_tokens=-1)
    assert said.json["usage"]["prompt_tokens"] == context + 1 - 3


def test_fields_of_encoder_decoders(server: RunningServer) -> None:
    ignored = complete(server, prompt="a", max_tokens=2, length_penalty=2, early_stopping=False, num_beams=1)
    assert (ignored.status, ignored.headers["x-ignored-fields"]) == (200, "length_penalty, early_stopping")
    for fields in ({"num_beams": 2}, {"source_language": "en"}, {"target_language": "de"}):
        refused = complete(server, prompt="a", **fields)
        assert (refused.status, refused.error["param"]) == (400, *fields)
        assert "for encoder-decoders of texts" in refused.error["message"]


def test_the_best_of_several_answers(server: RunningServer) -> None:
    fields: dict[str, Any] = {"prompt": ["a", "b"], "max_tokens": 6, "temperature": 2.0, "seed": 5, "logprobs": 0}
    all_six = complete(server, **fields, n=3).json["choices"]
    best = complete(server, **fields, n=1, best_of=3).json
    assert [choice["index"] for choice in best["choices"]] == [0, 1]
    assert best["usage"]["completion_tokens"] == 36
    for choice, group in zip(best["choices"], (all_six[:3], all_six[3:]), strict=True):
        means = [np.mean(one["logprobs"]["token_logprobs"]) for one in group]
        assert choice["text"] == group[int(np.argmax(means))]["text"]
    assert complete(server, prompt="a", best_of=2, stream=True).error["param"] == "best_of"


def test_formats_of_other_servers(server: RunningServer) -> None:
    schema = {"type": "object", "properties": {"a": {"const": 1}}, "required": ["a"], "additionalProperties": False}
    for fields in (
        {"response_format": {"type": "json_object", "schema": schema}},
        {"guided_json": schema},
        {"guided_json": json.dumps(schema)},
        {"json_schema": schema},
        {"guided_regex": r'\{"a": ?1\}'},
        {"guided_choice": ['{"a":1}'], "guided_decoding_backend": "auto"},
        {"guided_grammar": 'start: "{\\"a\\":1}"'},
    ):
        assert json.loads(content(chat(server, max_tokens=40, **fields))) == {"a": 1}
    both = chat(server, guided_regex="a", guided_choice=["a"])
    assert (both.status, both.error["param"]) == (400, "guided_choice")


def test_embeddings_may_be_shorter(server: RunningServer) -> None:
    whole = server.request("/v1/embeddings", {"input": "abc"}).json["data"][0]["embedding"]
    short = server.request("/v1/embeddings", {"input": "abc", "dimensions": 2}).json["data"][0]["embedding"]
    expected = np.array(whole[:2]) / np.linalg.norm(whole[:2])
    np.testing.assert_allclose(short, expected, rtol=1e-6)
    same = server.request("/v1/embeddings", {"input": "abc", "dimensions": 3}).json["data"][0]["embedding"]
    assert same == whole


def test_embeddings_of_token_ids_are_those_of_their_text(tmp_path: Path, server: RunningServer) -> None:
    answered = server.request("/v1/embeddings", {"input": [[5, 6]]})
    assert "the model has no tokenizer" in answered.error["message"]
    text_model(tmp_path, ScriptSlots([0] * 8, VOCABULARY)).close()
    tokenizer = Tokenizer.load(tmp_path)
    embedder: Any = next(model for model in server.service.models.loaded() if model.name == "lengths")
    embedder.embedder.tokenizer = tokenizer
    try:
        ids = tokenizer.encode("It was")
        by_text = server.request("/v1/embeddings", {"input": "It was"}).json["data"]
        assert server.request("/v1/embeddings", {"input": ids}).json["data"] == by_text
        both = server.request("/v1/embeddings", {"input": [ids, ids]}).json["data"]
        assert both[1]["embedding"] == by_text[0]["embedding"]
        letters = [token for letter in "the" for token in tokenizer.encode(letter, special_tokens=False)]
        assert letters != tokenizer.encode("the", special_tokens=False)
        wrong = server.request("/v1/embeddings", {"input": letters})
        assert "makes these token ids of no text" in wrong.error["message"]
    finally:
        embedder.embedder.tokenizer = None


def test_a_stop_string_applies_to_text_and_not_to_calls(tools: RunningServer) -> None:
    parameters = {
        "type": "object",
        "properties": {"city": {"const": "Rome"}},
        "required": ["city"],
        "additionalProperties": False,
    }
    tool = {"type": "function", "function": {"name": "w", "parameters": parameters}}
    for stop in ("ity", "tool_call", "{"):
        fields: dict[str, Any] = {
            "tools": [tool],
            "tool_choice": "required",
            "parallel_tool_calls": False,
            "stop": [stop],
            "max_tokens": 80,
        }
        (choice,) = chat(tools, **fields).json["choices"]
        assert choice["finish_reason"] == "tool_calls"
        assert json.loads(choice["message"]["tool_calls"][0]["function"]["arguments"]) == {"city": "Rome"}
        deltas = [event["choices"][0] for event in chat(tools, **fields, stream=True).events[:-1]]
        calls = [call for one in deltas for call in one["delta"].get("tool_calls", ())]
        assert json.loads("".join(call["function"]["arguments"] for call in calls)) == {"city": "Rome"}
        assert deltas[-1]["finish_reason"] == "tool_calls"


@pytest.mark.parametrize("stop", ["END", ["zzz", "END and", "EN"], "t, it was the wor", "never"])
def test_stop_strings_go_with_tools(tools: RunningServer, stop: Any) -> None:
    everything = content(chat(tools, max_tokens=90, tools=[_TOOL]))
    at = [everything.find(one) for one in ([stop] if isinstance(stop, str) else stop) if one in everything]
    whole = chat(tools, max_tokens=90, stop=stop, tools=[_TOOL]).json
    pieces = chat(tools, max_tokens=90, stop=stop, tools=[_TOOL], stream=True).events[:-1]
    assert whole["choices"][0]["message"]["content"] == (everything[: min(at)] if at else everything)
    assert whole["choices"][0]["finish_reason"] == ("stop" if at else "length")
    assert (whole["usage"]["completion_tokens"] < 90) == bool(at)
    text = "".join(event["choices"][0]["delta"].get("content", "") for event in pieces)
    assert text == whole["choices"][0]["message"]["content"]
    assert pieces[-1]["choices"][0]["finish_reason"] == whole["choices"][0]["finish_reason"]


def test_a_call_that_was_cut_off_may_be_sent_back(tools: RunningServer) -> None:
    cut = {"id": "c", "type": "function", "function": {"name": "w", "arguments": '{"city": "Par'}}
    messages = [
        *HELLO,
        {"role": "assistant", "content": None, "tool_calls": [cut]},
        {"role": "tool", "tool_call_id": "c", "content": "1"},
    ]
    assert chat(tools, messages=messages, tools=[_TOOL], max_tokens=2).status == 200


def test_switches_of_thinking_are_variables_of_the_template(tmp_path: Path, script: list[int]) -> None:
    model = text_model(tmp_path, ScriptSlots(script, VOCABULARY))
    texts = {
        "qwen": "{{ 'thinking' if enable_thinking is not defined or enable_thinking else 'not' }}",
        "effort": "{{ reasoning_effort | default('none given') }}",
        "granite": "{% if thinking %}thinking{% endif %}",
    }
    for template, fields, said in (
        ("qwen", {}, "thinking"),
        ("qwen", {"reasoning_effort": "none"}, "not"),
        ("qwen", {"reasoning_effort": "low"}, "thinking"),
        ("qwen", {"enable_thinking": False}, "not"),
        ("qwen", {"enable_thinking": False, "chat_template_kwargs": {"enable_thinking": True}}, "thinking"),
        ("effort", {}, "none given"),
        ("effort", {"reasoning_effort": "high"}, "high"),
        ("granite", {}, ""),
        ("granite", {"reasoning_effort": "high"}, "thinking"),
    ):
        assert model.template is not None
        one = dataclasses.replace(model, template=ChatTemplate(texts[template], "the test"))
        plan = thinking_plan(one, read_record(ChatRequest, {"messages": HELLO, **fields}))
        assert one.template is not None
        assert one.template.render(HELLO, **plan.variables) == said
        assert not plan.ignored
    model.close()


def _allowed(constraint: HeldAnswer) -> list[int]:
    mask = np.zeros(8, bool)
    constraint.mask(mask)
    return [int(token) for token in np.flatnonzero(mask)]


def test_a_budget_closes_the_thought() -> None:
    limit = ThinkingLimit(opening=1, closing=2, budget=3)
    constraint = HeldAnswer(None, min_tokens=0, ends={7}, thinking=limit.begin([5, 1, 5]))
    for token in (5, 6, 5):
        assert _allowed(constraint) == list(range(8))
        constraint.post(token)
    assert _allowed(constraint) == [2]
    constraint.post(2)
    for _ in range(9):
        assert _allowed(constraint) == list(range(8))
        constraint.post(5)
    late = HeldAnswer(None, min_tokens=0, ends={7}, thinking=limit.begin([5, 1, 2, 5]))
    for token in (5, 5, 5, 5, 1, 5, 5, 5):
        assert _allowed(late) == list(range(8))
        late.post(token)
    assert _allowed(late) == [2]


def test_ends_wait_for_the_least_number_of_tokens() -> None:
    constraint = HeldAnswer(None, min_tokens=2, ends={0, 7, 99})
    for _ in range(2):
        assert _allowed(constraint) == [1, 2, 3, 4, 5, 6]
        constraint.accept(1)
    assert _allowed(constraint) == list(range(8))


def test_reasoning_between_marks_is_reasoning_content(tmp_path: Path) -> None:
    said = "<think>Hm, so.</think>Rome"
    text_model(tmp_path, ScriptSlots([0] * 8, VOCABULARY)).close()
    tokens = Tokenizer.load(tmp_path).encode(said, special_tokens=False)
    template = "{% for message in messages %}{{ message.content }}{% endfor %}{# </think> #}"
    prompt = len(Tokenizer.load(tmp_path).encode("Hello", special_tokens=False))
    script = [0] * prompt + tokens + [1] * 20
    model = text_model(tmp_path, ScriptSlots(script, VOCABULARY))
    chat_template = ChatTemplate(template, "the test")
    tools = ToolSupport(chat_template, model.tokenizer)
    model = dataclasses.replace(model, template=chat_template, tools=tools)
    with running([ModelSource("demo", lambda: model)]) as server:
        whole = chat(server, max_tokens=len(tokens)).json["choices"][0]["message"]
        assert (whole["reasoning_content"], whole["content"]) == ("Hm, so.", "Rome")
        events = chat(server, max_tokens=len(tokens), stream=True).events[:-1]
        deltas = [event["choices"][0]["delta"] for event in events]
        assert "".join(delta.get("reasoning_content", "") for delta in deltas) == "Hm, so."
        assert "".join(delta.get("content", "") for delta in deltas) == "Rome"
        body = {"messages": HELLO, "max_tokens": len(tokens), "temperature": 0}
        blocks = server.request("/v1/messages", body).json["content"]
        assert [(block["type"], block.get("thinking") or block.get("text")) for block in blocks] == [
            ("thinking", "Hm, so."),
            ("text", "Rome"),
        ]
        asked = {"input": "Hello", "max_output_tokens": len(tokens), "temperature": 0}
        response = server.request("/v1/responses", asked).json
        reasoning = response["usage"]["output_tokens_details"]["reasoning_tokens"]
        assert 0 < reasoning < response["usage"]["output_tokens"]
        items = response["output"]
        assert [(item["type"], item["content"][0]["text"]) for item in items] == [
            ("reasoning", "Hm, so."),
            ("message", "Rome"),
        ]
        stopped = chat(server, max_tokens=len(tokens), stop="so").json["choices"][0]["message"]
        assert stopped["content"] == "Rome"  # stop strings apply to text
