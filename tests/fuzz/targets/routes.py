"""Requests to every route, whole: the application in this process, with a model that says what a script says.

An input is a line ``PATH``, then the body. A status of 500, a body that is no JSON, and an answer that does not come
are findings.
"""

import json
from pathlib import Path
from random import Random
from typing import Any

from tapeline.server._in_process_testing import InProcessServer
from tapeline.server._scripted_server_testing import HELLO
from tests.fuzz._json_mutations import mutate_json
from tests.fuzz._target import Target

_TOOL = {
    "type": "function",
    "function": {
        "name": "look_up",
        "description": "Looks up a word.",
        "parameters": {"type": "object", "properties": {"word": {"type": "string"}}, "required": ["word"]},
    },
}
_SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"], "additionalProperties": False}
_SHORT = {"model": "demo", "max_tokens": 3}
_PARTS = [{"type": "text", "text": "Hi"}, {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}]
_BODIES: tuple[tuple[str, dict[str, Any]], ...] = (
    ("/v1/chat/completions", {**_SHORT, "messages": HELLO, "temperature": 0, "seed": 1, "stop": ["a"], "n": 2}),
    ("/v1/chat/completions", {**_SHORT, "messages": HELLO, "stream": True, "stream_options": {"include_usage": True}}),
    ("/v1/chat/completions", {**_SHORT, "messages": HELLO, "tools": [_TOOL], "tool_choice": "auto"}),
    ("/v1/chat/completions", {**_SHORT, "messages": HELLO, "tools": [_TOOL], "tool_choice": "required"}),
    ("/v1/chat/completions", {**_SHORT, "messages": [{"role": "user", "content": _PARTS}], "logprobs": True}),
    (
        "/v1/chat/completions",
        {
            **_SHORT,
            "messages": HELLO,
            "response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": _SCHEMA}},
        },
    ),
    ("/v1/chat/completions", {**_SHORT, "messages": HELLO, "chat_template_kwargs": {"a": 1}, "logit_bias": {"5": 1}}),
    ("/v1/completions", {**_SHORT, "prompt": "It was", "echo": True, "logprobs": 2, "top_p": 0.9, "top_k": 5}),
    ("/v1/completions", {**_SHORT, "prompt": ["a", "b"], "n": 2, "temperature": 1.5, "seed": 3}),
    ("/v1/completions", {**_SHORT, "prompt": [1, 2, 3], "structured_outputs": {"choice": ["yes", "no"]}}),
    ("/v1/completions", {**_SHORT, "prompt": "a", "structured_outputs": {"regex": "[ab]+"}}),
    ("/v1/completions", {**_SHORT, "prompt": "a", "structured_outputs": {"grammar": 'start: "a" | "b"'}}),
    ("/v1/completions", {**_SHORT, "prompt": "a", "stop_token_ids": [4], "min_p": 0.1, "prompt_logprobs": 1}),
    ("/v1/embeddings", {"model": "lengths", "input": ["a", "bb"], "encoding_format": "float"}),
    ("/v1/rerank", {"model": "lengths", "query": "a", "documents": ["b", "c"], "top_n": 1}),
    ("/tokenize", {"model": "demo", "prompt": "It was"}),
    ("/detokenize", {"model": "demo", "tokens": [5, 6, 7]}),
)
_VALUES = (
    "demo",
    "lengths",
    "system",
    "assistant",
    "tool",
    "auto",
    "none",
    "json_object",
    "text",
    _TOOL,
    _SCHEMA,
    HELLO,
)
_KEYS = tuple(sorted({key for _, body in _BODIES for key in body} | {"role", "content", "type", "tool_calls", "name"}))
_PATHS = tuple(dict.fromkeys(path for path, _ in _BODIES))


_SERVER: list[InProcessServer] = []


def _seeds() -> list[bytes]:
    return [f"{path}\n{json.dumps(body)}".encode() for path, body in _BODIES]


def _mutate(data: bytes, draw: Random) -> bytes:
    path, _, body = data.partition(b"\n")
    if draw.random() < 0.03:
        path = draw.choice(_PATHS).encode()
    return path + b"\n" + mutate_json(body, draw, _VALUES, _KEYS)


def _run(data: bytes) -> bool:
    path, _, body = data.partition(b"\n")
    if path.decode("latin-1") not in _PATHS:
        return False
    if not _SERVER:
        directory = Path.cwd() / "model"
        directory.mkdir(exist_ok=True)
        _SERVER.append(InProcessServer(directory))
    status, answer = _SERVER[0].ask(path.decode(), body)
    if status == 200:
        if not answer.startswith(b"data: "):
            json.loads(answer)
        return True
    if status >= 500 or not json.loads(answer)["error"]["message"]:
        raise AssertionError(f"status {status}: {answer[:300]!r}")
    return False


TARGET = Target(seeds=_seeds, run=_run, mutate=_mutate, errors=())
