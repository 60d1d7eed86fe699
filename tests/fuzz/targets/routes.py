"""Requests to every route, whole: the application in this process, with a model that says what a script says.

An input is a line ``PATH``, then the body: JSON, or a form for transcriptions. A status of 500, a body that
is no JSON, and an answer that does not come are findings.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

from tapeline.server._in_process_testing import InProcessServer
from tapeline.server._scripted_server_testing import HELLO
from tests.fuzz._json_mutations import mutate_json
from tests.fuzz._target import Target
from tests.fuzz.targets import sounds

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
    ("/classify", {"model": "lengths", "input": ["a", "bb"], "use_activation": False}),
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
_SPEECH = "/v1/audio/transcriptions"
_BOUNDARY = "a0b1"
_FIELDS = (
    *(("model", "ears"), ("response_format", "verbose_json"), ("response_format", "srt"), ("language", "en")),
    *(("temperature", "0"), ("stream", "false"), ("timestamp_granularities[]", "segment"), ("prompt", "a"), ("x", "y")),
)
_HEADS = (
    b'Content-Disposition: form-data; name="file"; filename="a.wav"\r\nContent-Type: audio/wav',
    b'Content-Disposition: form-data; name="model"',
    b'content-disposition: form-data; name="model"; name="file"',
    b"Content-Disposition: form-data; name=file; filename*=UTF-8''%ff",
    b"Content-Disposition: attachment",
    b'Content-Transfer-Encoding: base64\r\nContent-Disposition: form-data; name="temperature"',
)
_PARTS_OF_FORMS = (
    *(b"\r\n", b"\n", b"--", f"--{_BOUNDARY}".encode(), f"\r\n--{_BOUNDARY}--\r\n".encode(), b'"', b";", b": ", b"\0"),
    *(b"name=", b"filename=", b"ears", b"demo", b"nan", b"1e400", b"true", b"\xff\xfe", *_HEADS),
)


def _form(fields: Sequence[tuple[str, str]], sound: bytes) -> bytes:
    parts = [f'Content-Disposition: form-data; name="{name}"\r\n\r\n{value}'.encode() for name, value in fields]
    parts.append(_HEADS[0] + b"\r\n\r\n" + sound)
    line = f"--{_BOUNDARY}".encode()
    return b"".join(line + b"\r\n" + part + b"\r\n" for part in parts) + line + b"--\r\n"


_SERVER: list[InProcessServer] = []


def _seeds() -> list[bytes]:
    bodies = [f"{path}\n{json.dumps(body)}".encode() for path, body in _BODIES]
    sound = sounds.TARGET.seeds()[0]
    forms = [_form(fields, sound) for fields in (_FIELDS[:1], _FIELDS[:2], (_FIELDS[0], _FIELDS[2]), _FIELDS)]
    return [*bodies, *(f"{_SPEECH}\n".encode() + form for form in forms)]


def _mutate(data: bytes, draw: Random) -> bytes:
    path, _, body = data.partition(b"\n")
    if path.decode("latin-1") == _SPEECH:
        return path + b"\n" + _mutated_form(body, draw)
    if draw.random() < 0.03:
        path = draw.choice(_PATHS).encode()
    return path + b"\n" + mutate_json(body, draw, _VALUES, _KEYS)


def _mutated_form(body: bytes, draw: Random) -> bytes:
    """Changes the sound, or puts pieces of forms into the text before it, or in place of some of it."""
    text, magic, sound = body.partition(b"RIFF")
    if draw.random() < 0.3:
        return text + sounds.TARGET.mutate(magic + sound, draw) if sounds.TARGET.mutate else body
    for _ in range(draw.choice((1, 1, 2, 4))):
        start = draw.randrange(len(text) + 1)
        stop = min(len(text), start + draw.choice((0, 0, 0, 1, 3, 9, 60)))
        text = text[:start] + draw.choice((b"", *_PARTS_OF_FORMS)) + text[stop:]
    if draw.random() < 0.3:
        name, value = draw.choice(_FIELDS)
        text = f'--{_BOUNDARY}\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'.encode() + text
    return text + magic + sound


def _run(data: bytes) -> bool:
    head, _, body = data.partition(b"\n")
    path = head.decode("latin-1")
    if path not in (*_PATHS, _SPEECH):
        return False
    if not _SERVER:
        directory = Path.cwd() / "model"
        directory.mkdir(exist_ok=True)
        _SERVER.append(InProcessServer(directory))
    form = f"multipart/form-data; boundary={_BOUNDARY}" if path == _SPEECH else "application/json"
    status, answer = _SERVER[0].ask(path, body, form)
    if status == 200:
        if path != _SPEECH and not answer.startswith(b"data: "):
            json.loads(answer)
        return True
    if status >= 500 or not json.loads(answer)["error"]["message"]:
        raise AssertionError(f"status {status}: {answer[:300]!r}")
    return False


TARGET = Target(seeds=_seeds, run=_run, mutate=_mutate, headed=True, errors=())
