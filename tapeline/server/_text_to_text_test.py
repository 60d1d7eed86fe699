"""/v1/completions of encoder-decoders, with a reader that says what it was asked for."""

import json
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from lang_core import InputError
from tapeline.running import Generation
from tapeline.server import ModelSource, ServerOptions, TextToTextModel
from tapeline.server._server_testing import RunningServer, running

_PATH = "/v1/completions"


class Spelling:
    """Reader that answers a text by its letters, a token each, in ``pace`` seconds each."""

    vocabulary = 90

    def __init__(self, pace: float = 0.0) -> None:
        self.pace, self.options, self.spelt = pace, dict[str, Any](), list[str]()

    def stream(
        self,
        prompt: str | None = None,
        *,
        token_ids: Sequence[int] | None = None,
        check: Callable[[], object] | None = None,
        **options: Any,
    ) -> Any:
        """Answers a text, or tokens, of which each is a star."""
        text = "*" * len(token_ids or ()) if prompt is None else prompt
        if text == "elvish":
            raise InputError("source_language='elvish' is no language of /models/a")
        self.options = options
        return _Letters(self, text, check or (lambda: None))

    def close(self) -> None:
        """Frees nothing."""


class _Letters:
    """Letters as they come."""

    def __init__(self, owner: Spelling, text: str, check: Callable[[], object]) -> None:
        self.prompt_tokens, self.answers = len(text), [Generation()]
        self._letters = self._spelt(owner, text, check)

    def _spelt(self, owner: Spelling, text: str, check: Callable[[], object]) -> Iterator[Any]:
        answer, most = self.answers[0], owner.options["max_new_tokens"] or 1 << 20
        for number, letter in enumerate(text, 1):
            check()
            time.sleep(owner.pace)
            owner.spelt.append(letter)
            answer.text += letter.upper()
            ended = number == len(text)
            answer.ended = "eos" if ended else "length" if number == most else None
            yield SimpleNamespace(text=letter)
            if answer.ended:
                return

    def __iter__(self) -> Any:
        return self

    def __next__(self) -> Any:
        return next(self._letters)


def _served(reader: Spelling, name: str = "speller") -> ModelSource:
    model = TextToTextModel(name=name, created=1, context=20, reader=reader)
    return ModelSource(name, lambda: model)


@pytest.fixture(scope="module")
def reader() -> Spelling:
    return Spelling()


@pytest.fixture(scope="module")
def slow() -> Spelling:
    return Spelling(0.05)


@pytest.fixture(scope="module")
def server(reader: Spelling, slow: Spelling) -> Iterator[RunningServer]:
    with running([_served(reader), _served(slow, "slow")], ServerOptions(port=0)) as started:
        yield started


def _ask(server: RunningServer, prompt: Any = "cat", **fields: Any) -> Any:
    return server.request(_PATH, {"model": "speller", "prompt": prompt, **fields})


def test_answers_and_their_usage(server: RunningServer, reader: Spelling) -> None:
    answered = _ask(server, ["cat", "horse"], max_tokens=4).json
    assert [(one["index"], one["text"], one["finish_reason"]) for one in answered["choices"]] == [
        (0, "CAT", "stop"),
        (1, "HORS", "length"),
    ]
    assert answered["usage"] == {
        "prompt_tokens": 8,
        "completion_tokens": 7,
        "total_tokens": 15,
        "prompt_tokens_details": {"cached_tokens": 0},
    }
    assert (answered["object"], answered["model"]) == ("text_completion", "speller")
    assert reader.options["max_new_tokens"] == 4
    assert _ask(server, [5, 6]).json["choices"][0]["text"] == "**"
    assert server.request("/v1/models/speller").json["task"] == "text_to_text"


def test_options_reach_the_model(server: RunningServer, reader: Spelling) -> None:
    assert _ask(server).status == 200
    untouched = {"temperature": 0, "max_new_tokens": None, "num_beams": None, "stop": None, "ignore_eos": False}
    assert untouched.items() <= reader.options.items()
    search = {"num_beams": 3, "length_penalty": 2.5, "early_stopping": "never", "target_language": "deu_Latn"}
    sampling = {"temperature": 0.5, "top_k": 7, "top_p": 0.5, "min_p": 0.25, "seed": 3, "repetition_penalty": 1.5}
    assert _ask(server, max_tokens=-1, stop="x", n=1, best_of=1, **search, **sampling).status == 200
    assert {**search, **sampling, "stop": ["x"], "max_new_tokens": None}.items() <= reader.options.items()


def test_a_stream_is_one_event_and_the_usage(server: RunningServer) -> None:
    body = _ask(server, stream=True, stream_options={"include_usage": True}).body.decode()
    events = [line.removeprefix("data: ") for line in body.split("\n\n") if line]
    assert events[-1] == "[DONE]"
    answer, usage = map(json.loads, events[:-1])
    assert (answer["choices"][0]["text"], answer["choices"][0]["finish_reason"], answer["usage"]) == (
        "CAT",
        "stop",
        None,
    )
    assert (usage["choices"], usage["usage"]["total_tokens"]) == ([], 6)


@pytest.mark.parametrize(
    "fields",
    [
        {"n": 2},
        {"best_of": 3},
        {"suffix": "x"},
        {"echo": True},
        {"logprobs": 0},
        {"prompt_logprobs": 1},
        {"logit_bias": {"3": 1}},
        {"min_tokens": 2},
        {"stop_token_ids": [3]},
        {"include_stop_str_in_output": True},
        {"skip_special_tokens": False},
        {"add_special_tokens": False},
        {"truncate_prompt_tokens": 4},
        {"return_token_ids": True},
        {"response_format": {"type": "json_object"}},
        {"guided_choice": ["a", "b"]},
    ],
    ids=lambda fields: next(iter(fields)),
)
def test_fields_that_cannot_be_honoured(server: RunningServer, fields: dict[str, Any]) -> None:
    refused = _ask(server, **fields)
    (name,) = fields
    assert (refused.status, refused.error["code"]) == (400, "unsupported_parameter")
    assert refused.error["param"].startswith(name)
    assert "encoder-decoders do not support it" in refused.error["message"]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"num_beams": 17}, "num_beams: expected a whole number from 1 to 16; found 17"),
        ({"early_stopping": "soon"}, 'early_stopping: expected true or false, or "never"; found "soon"'),
        ({"prompt": "elvish"}, "source_language='elvish' is no language of"),
        ({"prompt": "a" * 300_000}, "prompt: expected at most 262464 letters; found 300000"),
    ],
)
def test_values_that_are_refused(server: RunningServer, fields: dict[str, Any], message: str) -> None:
    refused = _ask(server, **fields)
    assert (refused.status, message in refused.error["message"]) == (400, True), refused.error
    assert "/models/a" not in refused.error["message"]


@pytest.mark.parametrize("name", ["speller", None])
def test_other_routes_name_the_right_one(name: str | None) -> None:
    body: dict[str, Any] = {"messages": [{"role": "user", "content": "cat"}], "model": name}
    with running([_served(Spelling())]) as server:
        refused = server.request("/v1/chat/completions", body)
        assert server.request(_PATH, {"prompt": "cat"}).json["choices"][0]["text"] == "CAT"
    assert (refused.status, refused.error["code"]) == (400, "wrong_model")
    assert refused.error["message"].startswith(
        "model 'speller' is an encoder-decoder, which answers texts at /v1/completions"
    )


def test_metrics_count_answers(server: RunningServer) -> None:
    def figure(name: str) -> float:
        lines = server.request("/metrics").body.decode().splitlines()
        return sum(float(line.split()[-1]) for line in lines if line.startswith(name) and 'name="speller"' in line)

    names = ["tapeline:prompt_tokens_total", "tapeline:generation_tokens_total", "tapeline:request_success_total"]
    before = [figure(name) for name in names]
    assert _ask(server, "horses", max_tokens=4).status == 200
    assert [figure(name) - earlier for name, earlier in zip(names, before, strict=True)] == [6, 4, 1]


def test_an_answer_that_takes_too_long_is_given_up(server: RunningServer, slow: Spelling) -> None:
    slow.spelt.clear()
    late = server.request(_PATH, {"model": "slow", "prompt": "a" * 200, "timeout": 0.2})
    assert late.status == 504
    assert "the answer took longer than 0.2 s: send shorter texts" in late.error["message"]
    assert server.request(_PATH, {"model": "slow", "prompt": "b"}).status == 200
    assert len(slow.spelt) < 100


def test_a_client_that_has_gone_frees_the_model(server: RunningServer, slow: Spelling) -> None:
    slow.spelt.clear()
    body = json.dumps({"model": "slow", "prompt": "a" * 200}).encode()
    head = f"POST {_PATH} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    with server.socket() as connection:
        connection.sendall(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
        while not slow.spelt:
            time.sleep(0.01)
        connection.shutdown(socket.SHUT_RDWR)
    assert server.request(_PATH, {"model": "slow", "prompt": "b"}).status == 200
    assert len(slow.spelt) < 100
