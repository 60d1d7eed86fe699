"""``/health`` and a stream of another client while a client sends hostile input without a pause. Run by hand.

It prints the rows of the table in docs/security.md; TAPELINE_HOSTILE_SECONDS says how long each input is sent.
"""

import base64
import collections
import concurrent.futures
import io
import json
import os
import statistics
import threading
import time
from collections.abc import Callable
from http.client import HTTPConnection
from typing import Any, Final

import numpy as np
import pytest
import soundfile
from PIL import Image

from tests.product._mixed_load_testing import export_every_kind, memory, sound_form
from tests.product._serving import ServerProcess, serving

_SECONDS: Final = float(os.environ.get("TAPELINE_HOSTILE_SECONDS", "3"))
_CONNECTIONS: Final = 2
_COMPLETIONS: Final = "/v1/completions"
_CHAT: Final = "/v1/chat/completions"
_TRANSCRIPTIONS: Final = "/v1/audio/transcriptions"
_LONG: Final = "the quick brown fox " * 195_000
_STREAM: Final = {"model": "demo", "prompt": "It was", "max_tokens": 200, "temperature": 0, "ignore_eos": True}
Send = Callable[[ServerProcess], int]


def _post(path: str, body: Any, **headers: str) -> Send:
    return lambda server: server.request(path, body, **headers)[0]


def _sound(seconds: float, rate: int, kind: str) -> Send:
    file = io.BytesIO()
    soundfile.write(file, np.zeros(int(seconds * rate), np.float32), rate, format=kind)
    body, headers = sound_form(file.getvalue(), {"model": "whisper"})
    return _post(_TRANSCRIPTIONS, body, **headers)


def _picture(width: int, height: int, kind: str) -> Send:
    file = io.BytesIO()
    Image.new("1", (width, height)).save(file, kind)
    url = f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}"
    content = [{"type": "image_url", "image_url": {"url": url}}]
    return _post(_CHAT, {"model": "smolvlm", "max_tokens": 1, "messages": [{"role": "user", "content": content}]})


def _chat(text: str, **fields: Any) -> Send:
    return _post(_CHAT, {"model": "demo", "max_tokens": 1, "messages": [{"role": "user", "content": text}], **fields})


_INPUTS: Final[dict[str, Callable[[], Send]]] = {
    "none": lambda: lambda server: time.sleep(0.1) or 0,
    "template, `'a'.center(10**9)` 10**9 times": lambda: _chat("a", chat_template_kwargs={"loops": 10**9}),
    "WAV, 384 KB at 383,999 Hz": lambda: _sound(0.5, 383_999, "WAV"),
    "FLAC, 40 seconds of silence": lambda: _sound(40, 8_000, "FLAC"),
    "PNG, 5,700 x 5,700 pixels of one bit": lambda: _picture(5_700, 5_700, "PNG"),
    "PNG, 60,000 x 9,000 pixels": lambda: _picture(60_000, 9_000, "PNG"),
    "a prompt of 3.9 MB": lambda: _post(_COMPLETIONS, {"model": "demo", "prompt": "a" * 3_900_000}),
    "/tokenize, a text of 3.9 MB": lambda: _post("/tokenize", {"model": "demo", "prompt": _LONG}),
    "/tokenize, 262,144 letters": lambda: _post(
        "/tokenize", {"model": "demo", "prompt": _LONG[: 1 << 18], "return_token_strs": True}
    ),
    "/detokenize, 1.3 million tokens": lambda: _post("/detokenize", {"model": "demo", "tokens": [3] * 1_300_000}),
    "embeddings, a text of 3.9 MB": lambda: _post("/v1/embeddings", {"model": "sentences", "input": _LONG}),
    "a body of 3.9 MB that is no JSON": lambda: _post(_COMPLETIONS, b"[" * 3_900_000),
    "malformed bodies of 100 bytes": lambda: _post(_COMPLETIONS, b'{"prompt": ' + b"9" * 90),
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("hostile")
    bundles = export_every_kind(folder)
    slow = "{% for i in range(loops | default(1)) %}{{ 'a'.center(loops | default(1)) }}{% endfor %}"
    (bundles[0] / "chat_template.jinja").write_text(slow + "{% for m in messages %}{{ m.content }}{% endfor %}")
    with serving(folder / "server", *(f"--bundle={bundle}" for bundle in bundles)) as started:
        yield started
        assert started.end() == 0


def _stream(server: ServerProcess, gaps: list[float]) -> bytes:
    """Reads a stream, notes the time before each piece, and returns the text."""
    connection = HTTPConnection("127.0.0.1", server.port, timeout=600)
    connection.request(
        "POST", _COMPLETIONS, json.dumps({**_STREAM, "stream": True}), {"content-type": "application/json"}
    )
    response, before, pieces = connection.getresponse(), time.monotonic(), list[str]()
    while line := response.readline():
        if line.startswith(b"data: {"):
            now = time.monotonic()
            gaps.append(now - before)
            before = now
            pieces += [choice["text"] for choice in json.loads(line[6:])["choices"]]
    connection.close()
    return "".join(pieces).encode()


def _probe(server: ServerProcess, waits: list[float], end: threading.Event) -> None:
    while not end.wait(0.05):
        began = time.monotonic()
        assert server.request("/health")[0] == 200
        waits.append(time.monotonic() - began)


def _hostile(server: ServerProcess, send: Send, statuses: collections.Counter[int], end: threading.Event) -> None:
    while not end.is_set():
        statuses[send(server)] += 1


def _percentile(values: list[float]) -> str:
    ordered = sorted(values)
    return f"{1000 * ordered[int(0.99 * (len(ordered) - 1))]:.1f} ({1000 * ordered[-1]:.0f})"


def test_other_clients_are_answered_while_hostile_input_comes(server: ServerProcess) -> None:
    alone = _stream(server, [])
    for name, make in _INPUTS.items():
        send, end = make(), threading.Event()
        gaps, waits, statuses = list[float](), list[float](), collections.Counter[int]()
        with concurrent.futures.ThreadPoolExecutor(_CONNECTIONS + 1) as pool:
            work = [pool.submit(_probe, server, waits, end)]
            work += [pool.submit(_hostile, server, send, statuses, end) for _ in range(_CONNECTIONS)]
            stop = time.monotonic() + _SECONDS
            try:
                while time.monotonic() < stop:
                    assert _stream(server, gaps) == alone, name
            finally:
                end.set()
            for one in work:
                one.result()
        mib = memory(server.process.pid)["all_pss"] / 1024
        got = ", ".join(str(status) for status in sorted(statuses))
        row = (name, got, f"{1000 * statistics.median(gaps):.1f}", _percentile(gaps), _percentile(waits), f"{mib:.0f}")
        print(f"| {' | '.join(row)} |  {sum(statuses.values())} sent, load {os.getloadavg()[0]:.0f}", flush=True)
        assert 500 not in statuses
