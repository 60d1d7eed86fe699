"""Fields of requests: what is taken, and how the rest is refused."""

import contextlib
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tapeline.server._errors import RequestError
from tapeline.server._fields import GenerationFields
from tapeline.server._openapi import POSTS
from tapeline.server._records import RecordType, fields_of, read_record
from tapeline.server._requests import (
    ChatRequest,
    CompletionRequest,
    DetokenizeRequest,
    EmbeddingRequest,
    RerankRequest,
    TokenizeRequest,
)

HELLO: dict[str, Any] = {"messages": [{"role": "user", "content": "Hello"}]}
PROMPT: dict[str, Any] = {"prompt": "Hello"}


def refused(kind: type[RecordType], given: Any) -> RequestError:
    with pytest.raises(RequestError) as caught:
        check(kind, given)
    assert caught.value.status == 400
    return caught.value


def check(kind: type[RecordType], given: Any) -> None:
    record = read_record(kind, given)
    if isinstance(record, GenerationFields):
        record.check()


@pytest.mark.parametrize(
    ("fields", "param", "message"),
    [
        ({"temperature": "hot"}, "temperature", 'temperature: expected a number from 0 to 100; found "hot"'),
        ({"temperature": True}, "temperature", "found true"),
        ({"temperature": -0.1}, "temperature", "found -0.1"),
        ({"n": 0}, "n", "n: expected a whole number from 1 to 16; found 0"),
        ({"n": 1.5}, "n", "found 1.5"),
        ({"top_p": 1.01}, "top_p", "expected a number from 0 to 1"),
        ({"repetition_penalty": 0}, "repetition_penalty", "expected a number above 0; found 0"),
        ({"stop": [1]}, "stop[0]", "stop[0]: expected a string; found 1"),
        ({"stop": 3}, "stop", "stop: expected a string, or a list of at most 16"),
        ({"stop": ["a"] * 17}, "stop", "stop: expected a string, or a list of at most 16, each"),
        ({"logit_bias": {"1": 101}}, "logit_bias.1", "logit_bias.1: expected a number from -100 to 100; found 101"),
        ({"stream": "yes"}, "stream", 'stream: expected true or false; found "yes"'),
        ({"stream_options": {"include_usage": True}}, "stream_options", "goes with `stream`: true"),
        ({"stream": True, "stream_options": {"x": 1}}, "stream_options.x", "unknown field; available: include_usage"),
        ({"store": 1}, "store", "store: expected true or false; found 1"),
        ({"repeat_penalty": 2, "repetition_penalty": 1}, "repeat_penalty", "contradicts repetition_penalty=1"),
        ({"max_tokens": 3, "min_tokens": 4}, "min_tokens", "expected at most max_tokens=3; found 4"),
        ({"truncate_prompt_tokens": 0}, "truncate_prompt_tokens", "at least 1, or -1; found 0"),
        ({"add_generation_prompt": True, "continue_final_message": True}, "continue_final_message", "contradicts"),
        ({"use_beam_search": True}, "use_beam_search", "expected false; found true"),
        ({"grammar": "root ::= x"}, "grammar", "grammars in GBNF are not read"),
        ({"temprature": 1}, "temprature", "did you mean 'temperature'"),
        ({"temprature": 1}, "temprature", "temprature: unknown field; available: temperature, "),
        ({"temprature": 1}, "temprature", " in all); did you mean 'temperature'"),
        ({"max_tokens": 0}, "max_tokens", "at least 1"),
        ({"max_tokens": 3, "max_completion_tokens": 4}, "max_completion_tokens", "4 contradicts max_tokens=3"),
        ({"top_logprobs": 2}, "top_logprobs", "goes with `logprobs`: true"),
        ({"functions": [{}]}, "functions", "functions: expected a list of at most 0; found"),
        ({"messages": []}, "messages", "expected a list of at least 1"),
        ({"messages": "Hello"}, "messages", "expected a list"),
        ({"messages": [{"content": "Hello"}]}, "messages[0].role", "messages[0].role: this field is required"),
        ({"messages": [{"role": "king", "content": ""}]}, "messages[0].role", 'found "king"'),
        ({"messages": [{"role": "user", "content": 3}]}, "messages[0].content", "expected a string, or a list"),
    ],
)
def test_a_chat_is_refused(fields: dict[str, Any], param: str, message: str) -> None:
    error = refused(ChatRequest, {**HELLO, **fields})
    assert message in str(error)
    assert error.as_json()["error"]["param"] == param


@pytest.mark.parametrize(
    ("part", "where", "message", "code"),
    [
        ({"type": "input_audio"}, "type", "input_audio is not supported: send sound to", "unsupported_parameter"),
        ({"type": "file", "file": {}}, "type", "file is not supported: send its text", "unsupported_parameter"),
        (
            {"type": "image"},
            "type",
            "expected text or image_url or input_text or output_text or refusal or thinking; found",
            None,
        ),
        ({"text": "Hello"}, "type", "this field is required: text or image_url or ", None),
        ({"type": "image_url"}, "image_url", "this field is required: The picture", None),
        ({"type": "image_url", "image_url": "data:"}, "image_url", "expected a JSON object", None),
        (
            {"type": "image_url", "image_url": {"url": "data:", "detail": "none"}},
            "image_url.detail",
            'expected "auto" or "low" or "high"; found "none"',
            None,
        ),
    ],
)
def test_parts_that_are_not_taken_are_refused_by_name(
    part: dict[str, Any], where: str, message: str, code: str | None
) -> None:
    error = refused(ChatRequest, {"messages": [{"role": "user", "content": [part]}]})
    assert f"messages[0].content[0].{where}: {message}" in str(error)
    assert error.code == code


@pytest.mark.parametrize("kind", [kind for kind, _ in POSTS.values()])
def test_fields_that_are_not_supported_are_refused_unless_null(kind: type[RecordType]) -> None:
    for name in kind.REFUSED:
        assert f"{name}: not supported: " in str(refused(kind, {name: {}}))
        assert f"{name}: not supported" not in str(refused(kind, {name: None, "zzz": 1}))


@pytest.mark.parametrize(
    ("kind", "given", "message"),
    [
        (CompletionRequest, {}, "prompt: this field is required: Text or token ids"),
        (CompletionRequest, {"prompt": None}, "prompt: this field is required"),
        (CompletionRequest, {"prompt": ""}, "prompt: expected a string that is not empty"),
        (CompletionRequest, {"prompt": [1, "a"]}, "prompt"),
        (CompletionRequest, {**PROMPT, "n": 3, "best_of": 2}, "best_of: expected at least n=3; found 2"),
        (CompletionRequest, {**PROMPT, "max_tokens": 0}, "max_tokens: 0 goes with `echo`"),
        (CompletionRequest, [], "the body: expected a JSON object; found []"),
        (EmbeddingRequest, {"input": [1, "a"]}, "input"),
        (EmbeddingRequest, {"input": "a", "encoding_format": "hex"}, 'expected "float" or "base64"; found "hex"'),
        (RerankRequest, {"query": "a", "documents": [{"text": ""}]}, "documents[0]"),
        (TokenizeRequest, {"prompt": 1}, "prompt: expected a string; found 1"),
        (DetokenizeRequest, {"tokens": [-1]}, "tokens[0]: expected a whole number of at least 0; found -1"),
    ],
)
def test_refusals(kind: type[RecordType], given: Any, message: str) -> None:
    assert message in str(refused(kind, given))


def test_a_whole_number_may_be_written_with_a_point() -> None:
    chat = read_record(ChatRequest, {**HELLO, "n": 2.0})
    assert (chat.n, type(chat.n)) == (2, int)


def test_null_is_as_if_left_out() -> None:
    fields = read_record(ChatRequest, {**HELLO, "temperature": None, "stop": None, "n": None, "stream": None})
    assert fields == read_record(ChatRequest, HELLO)


def test_prompts_come_in_four_forms() -> None:
    for prompt, prompts in (("a", ("a",)), ([1, 2], ((1, 2),)), (["a", "b"], ("a", "b")), ([[1], [2]], ((1,), (2,)))):
        assert read_record(CompletionRequest, {"prompt": prompt}).prompts == prompts


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)


@pytest.mark.parametrize("kind", [kind for kind, _ in POSTS.values()])
def test_any_value_of_any_field_is_read_or_refused(kind: type[RecordType]) -> None:
    names = st.sampled_from([*fields_of(kind), *kind.REFUSED])

    @settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(st.dictionaries(names, JSON, max_size=4) | JSON)
    def run(given: Any) -> None:
        with contextlib.suppress(RequestError):
            check(kind, given)

    run()
