"""Drawn requests of every kind for a server of a text model, a model that sees, an embedder and Whisper."""

import base64
import collections
import contextlib
import io
import itertools
import json
import os
import random
import re
import socket
import string
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
import soundfile
from PIL import Image

from tests.goldens.speech.files import read_speech_goldens, sound, write_speech_checkpoint
from tests.goldens.vision_language.cases import CASES
from tests.goldens.vision_language.files import read_vision_language_manifest, write_vision_language_checkpoint
from tests.product._bundles import export
from tests.product._sentences import export_sentences
from tests.product._serving import ServerProcess

_COMPLETIONS: Final = "/v1/completions"
_CHAT: Final = "/v1/chat/completions"
_TEMPLATE: Final = (  # as Hermes' models have it
    "{% if tools %}<tools>{% for tool in tools %}{{ tool|tojson }}{% endfor %}</tools>"
    'Answer with <tool_call>{"name": ..., "arguments": ...}</tool_call>{% endif %}'
    "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}"
)
_TEXT: Final = "It was the best of times, it was the worst of times, it was the age of wisdom, it was the age of "
_BOUNDARY: Final = "----boundary"
_JSON: Final = "application/json"


def export_every_kind(folder: Path) -> list[Path]:
    """Exports a tiny model of each kind that a server takes; returns the bundles."""
    demo = export("demo", folder / "demo", slots=4, max_sequence=512)
    (demo / "chat_template.jinja").write_text(_TEMPLATE)
    seeing, hearing = folder / "seeing", folder / "hearing"
    seeing.mkdir()
    hearing.mkdir()
    case = CASES["smolvlm"]
    write_vision_language_checkpoint(seeing, case, read_vision_language_manifest()["cases"][case.name]["shapes"])
    write_speech_checkpoint(hearing, read_speech_goldens()["shapes"])
    return [
        demo,
        export(seeing, folder / "smolvlm", slots=3, max_sequence=256),
        export(hearing, folder / "whisper", sequence=4),
        export_sentences(folder / "sentences_model", folder / "sentences"),
    ]


@dataclass(frozen=True, slots=True)
class Ask:
    """Request of a kind.

    Attributes:
        kind: its kind.
        path: route.
        body: JSON, or bytes.
        headers: further headers.
    """

    kind: str
    path: str
    body: Any
    headers: Mapping[str, str] = field(default_factory=dict)

    def send(self, server: ServerProcess) -> tuple[int, Any]:
        """Sends it and returns status and answer, without what differs between equal answers."""
        status, answer = server.request(self.path, self.body, **self.headers)
        return status, _lasting(answer)


def _lasting(answer: Any) -> Any:
    """Returns an answer without identifiers, times and the number of tokens that were reused; of events, their sum."""
    if isinstance(answer, dict):
        left_out = ("id", "created", "prompt_tokens_details")
        return {name: _lasting(value) for name, value in answer.items() if name not in left_out}
    if isinstance(answer, list):
        return [_lasting(value) for value in answer]
    if isinstance(answer, str) and answer.startswith("data: "):
        *parts, last = (part.removeprefix("data: ") for part in answer.strip().split("\n\n"))
        return [*_choices([_lasting(json.loads(part)) for part in parts]), last]
    return answer


def _choices(events: list[Any]) -> list[Any]:
    """Returns the choices of a stream, whose events may come in other pieces and another order each time."""
    choices: dict[int, Any] = {}
    for event in events:
        for part in event.get("choices", ()) or [event]:
            number = part.get("index", -1)
            choices[number] = _sum(choices.get(number), part)
    return [choices[number] for number in sorted(choices)]


def _sum(before: Any, part: Any) -> Any:
    """Returns two pieces of an answer as one."""
    if before is None or part is None:
        return part if before is None else before
    if isinstance(part, dict):
        return {name: _sum(before.get(name), part.get(name)) for name in {**before, **part}}
    if isinstance(part, list) and all(isinstance(one, dict) and "index" in one for one in (*before, *part)):
        return _choices([*before, *part])  # calls of tools
    return part if isinstance(part, int) or part in ("assistant", "function") else before + part


def _prompt(draw: random.Random) -> str:
    """Returns a text that may begin as others do, and that nobody has sent before."""
    words = ["".join(draw.choices(string.ascii_lowercase, k=draw.randrange(1, 6))) for _ in range(draw.randrange(1, 9))]
    return _TEXT[: draw.randrange(0, len(_TEXT))] + " ".join(words)


def _sampling(draw: random.Random) -> dict[str, Any]:
    settings = (
        {"temperature": 0},
        {"temperature": 0.9, "seed": draw.randrange(99)},
        {"temperature": 0.7, "top_p": 0.9, "seed": 4, "repetition_penalty": 1.1},
        {"temperature": 1.2, "top_k": 20, "seed": draw.randrange(99), "logprobs": True, "top_logprobs": 2},
    )
    return {**draw.choice(settings), "max_tokens": draw.randrange(1, 40), "stream": draw.random() < 0.4}


def _completion(draw: random.Random) -> Ask:
    fields = _sampling(draw)
    if fields.pop("top_logprobs", None):
        fields["logprobs"] = 2
    return Ask(
        "completion", _COMPLETIONS, {"model": "demo", "prompt": _prompt(draw), "n": draw.choice((1, 2)), **fields}
    )


def _conversation(draw: random.Random, turns: int) -> dict[str, Any]:
    roles = itertools.islice(itertools.cycle(("user", "assistant")), turns)
    messages = [{"role": role, "content": _prompt(draw)} for role in roles]
    return {"model": "demo", "messages": messages, **_sampling(draw)}


def _chat(draw: random.Random) -> Ask:
    return Ask("chat", _CHAT, _conversation(draw, draw.choice((1, 3))))


def _schema(draw: random.Random, depth: int = 2) -> dict[str, Any]:
    if depth and draw.random() < 0.6:
        names = {"".join(draw.choices(string.ascii_lowercase, k=4)) for _ in range(draw.randrange(1, 4))}
        properties = {name: _schema(draw, depth - 1) for name in sorted(names)}
        return {
            "type": "object",
            "properties": properties,
            "required": sorted(names),
            "additionalProperties": False,
        }
    return draw.choice(
        (
            {"type": "integer", "minimum": 0, "maximum": draw.randrange(1, 10**6)},
            {"enum": ["it was", "the", draw.randrange(10**6)]},
            {"type": "array", "items": {"type": "boolean"}, "maxItems": draw.randrange(1, 5)},
            {"type": "string", "pattern": f"^[a-{draw.choice('bcdef')}]{{1,{draw.randrange(2, 8)}}}$"},
        )
    )


def _tools(draw: random.Random) -> Ask:
    parameters = {"type": "object", "properties": {"value": _schema(draw, 1)}, "required": ["value"]}
    name = f"tool_{draw.randrange(10**6)}"
    tools = [{"type": "function", "function": {"name": name, "parameters": parameters}}]
    choice = draw.choice(("auto", "required", {"type": "function", "function": {"name": name}}))
    messages = [{"role": "user", "content": _prompt(draw)[-40:]}]  # the tools take most of the context
    fields = {**_conversation(draw, 1), "messages": messages, "tools": tools, "tool_choice": choice}
    return Ask("tools", _CHAT, fields)


def _format(draw: random.Random) -> Ask:
    number = draw.randrange(10**6)
    form = draw.choice(
        (
            {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": _schema(draw)}}},
            {"response_format": {"type": "json_object"}},
            {"structured_outputs": {"regex": f"[a-f]{{3}}{number}"}},
            {"structured_outputs": {"choice": ["yes", "no", str(number)]}},
            {"structured_outputs": {"grammar": f'start: ("a" | "{number}")+'}},
        )
    )
    return Ask("schema", _CHAT, {**_conversation(draw, 1), **form})


def _picture(draw: random.Random) -> Ask:
    size = draw.randrange(20, 70), draw.randrange(20, 60)
    values = np.frombuffer(draw.randbytes(size[0] * size[1] * 3), np.uint8).reshape(size[1], size[0], 3)
    file = io.BytesIO()
    Image.fromarray(values).save(file, draw.choice(("PNG", "JPEG", "WEBP")))
    url = f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}"
    parts = [{"type": "image_url", "image_url": {"url": url}}, {"type": "text", "text": "What is this?"}]
    fields = {**_sampling(draw), "max_tokens": 8}
    return Ask("image", _CHAT, {"model": "smolvlm", "messages": [{"role": "user", "content": parts}], **fields})


def sound_form(file: bytes, fields: Mapping[str, str]) -> tuple[bytes, Mapping[str, str]]:
    """Returns body and headers of a request with a file of sound."""
    parts = [f'name="{name}"\r\n\r\n{value}'.encode() for name, value in fields.items()]
    parts.append(b'name="file"; filename="a.wav"\r\nContent-Type: audio/wav\r\n\r\n' + file)
    head = f"--{_BOUNDARY}\r\nContent-Disposition: form-data; ".encode()
    body = b"".join(head + part + b"\r\n" for part in parts) + f"--{_BOUNDARY}--\r\n".encode()
    return body, {"content-type": f"multipart/form-data; boundary={_BOUNDARY}"}


def _transcription(draw: random.Random) -> Ask:
    samples, file = sound("speech"), io.BytesIO()
    start = draw.randrange(len(samples) // 2)
    rate = draw.choice((8_000, 16_000, 22_050, 48_000))
    soundfile.write(file, samples[start:], rate, format=draw.choice(("WAV", "FLAC")))
    return _hear(draw, "audio", file.getvalue())


def _hear(draw: random.Random, kind: str, file: bytes) -> Ask:
    fields = {"model": "whisper", "response_format": draw.choice(("json", "verbose_json", "text", "srt"))}
    return Ask(kind, "/v1/audio/transcriptions", *sound_form(file, fields))


def _words(draw: random.Random) -> str:
    return " ".join(f"w{draw.randrange(3, 67)}" for _ in range(draw.randrange(1, 6)))


def _embedding(draw: random.Random) -> Ask:
    texts = [_words(draw) for _ in range(draw.randrange(1, 6))]
    return Ask("embedding", "/v1/embeddings", {"model": "sentences", "input": texts})


def _rank(draw: random.Random) -> Ask:
    documents = [_words(draw) for _ in range(draw.randrange(1, 6))]
    return Ask("rerank", "/v1/rerank", {"model": "sentences", "query": _words(draw), "documents": documents})


def _count(draw: random.Random) -> Ask:
    return Ask("tokenize", "/tokenize", {"model": "demo", "prompt": _prompt(draw)})


_KINDS: Final[Mapping[Callable[[random.Random], Ask], int]] = {
    _completion: 4,
    _chat: 4,
    _tools: 3,
    _format: 4,
    _picture: 2,
    _transcription: 1,
    _embedding: 2,
    _rank: 1,
    _count: 1,
}


def every_kind(draw: random.Random) -> list[Ask]:
    """Draws a request of each kind."""
    return [make(draw) for make in _KINDS]


def drawn(draw: random.Random) -> Ask:
    """Draws a request that is answered, the same way each time."""
    (make,) = draw.choices(list(_KINDS), list(_KINDS.values()))
    return make(draw)


def malformed(draw: random.Random) -> Ask:
    """Draws a request that is refused."""
    ask = draw.choice(every_kind(draw))
    if isinstance(ask.body, bytes):
        return _hear(draw, "malformed", draw.choice((b"ID3" + draw.randbytes(99), b"RIFF" + draw.randbytes(999), b"")))
    whole = json.dumps(ask.body).encode()
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    body = draw.choice(
        (
            whole[: draw.randrange(len(whole) - 1)],
            draw.randbytes(draw.randrange(1, 2000)),
            b"[" * draw.randrange(100, 100_000),
            json.dumps({**ask.body, "".join(draw.choices(string.ascii_letters, k=9)): 1}).encode(),
            {**ask.body, "model": f"none{draw.randrange(10**6)}"},
            {"model": "demo", "prompt": "a" * draw.randrange(5_000, 100_000)},
            {"model": "demo", "prompt": "a", "structured_outputs": {"regex": "(" * draw.randrange(1, 50)}},
            {"model": "demo", "prompt": "a", "structured_outputs": {"grammar": "[a" * draw.randrange(1, 4_000)}},
            {"model": "smolvlm", "messages": [{"role": "user", "content": [picture]}]},
            {"model": "demo", "messages": [{"role": "user", "content": "a"}], "chat_template": "{{ 9 ** 9 ** 9 }}"},
        )
    )
    path = ask.path
    if isinstance(body, dict) and body.get("model") in ("demo", "smolvlm"):
        path = _CHAT if "messages" in body else _COMPLETIONS
    return Ask("malformed", path, body)


def cancel(server: ServerProcess, draw: random.Random) -> None:
    """Sends a request, or part of one, and goes away before its answer is there."""
    ask = draw.choice((_completion, _chat, _tools, _format, _picture, _transcription))(draw)
    body = ask.body
    if not isinstance(body, bytes):
        more = {"stream": draw.random() < 0.7, "max_tokens": 150, "ignore_eos": True}
        body = json.dumps({**body, **more}).encode()
    kind = ask.headers.get("content-type", _JSON)
    head = f"POST {ask.path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: {kind}\r\ncontent-length: {len(body)}\r\n\r\n"
    sent = head.encode() + body
    with server.connect() as connection:
        connection.sendall(sent[: draw.choice((draw.randrange(len(sent)), len(sent), len(sent), len(sent)))])
        connection.settimeout(draw.choice((0.001, 0.05, 0.5)))
        with contextlib.suppress(TimeoutError):
            connection.recv(300)
        if draw.random() < 0.5:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")


def _family(process: int) -> list[int]:
    """Returns a process and its descendants."""
    family = [process]
    for one in family:
        for children in Path(f"/proc/{one}/task").glob("*/children"):
            try:
                family += map(int, children.read_text().split())
            except OSError:  # the thread has ended
                continue
    return family


def memory(process: int) -> dict[str, float]:
    """Returns figures of a process, and of it with its descendants: memory in KiB, file descriptors, threads."""
    figures = collections.Counter[str]()
    for one in _family(process):
        try:
            status = Path(f"/proc/{one}/status").read_text()
            shared = Path(f"/proc/{one}/smaps_rollup").read_text()
            files = len(os.listdir(f"/proc/{one}/fd"))
        except OSError:  # it has ended
            continue
        facts = {name: int(value) for name, value in re.findall(r"^(\w+):\s+(\d+)", status + shared, re.MULTILINE)}
        values = {
            "rss": facts["VmRSS"],
            "pss": facts["Pss"],
            "anonymous": facts["RssAnon"],
            "files": files,
            "threads": facts["Threads"],
            "processes": 1,
        }
        figures.update({f"all_{name}": value for name, value in values.items()})
        if one == process:
            figures.update({f"server_{name}": value for name, value in values.items()})
    return dict(figures)
