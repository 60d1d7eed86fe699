"""Access to ``tapeline serve`` by API keys, hosts and origins; nobody learns what other keys sent."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests.product._bundles import export
from tests.product._serving import ServerProcess, serving

_PROMPT: Final = "It was the best of times, it was the worst of times, it was the age of wisdom"
_OTHER: Final = "it was the epoch of belief, it was the epoch of incredulity, it was the season of Light"
_MESSAGES: Final = [{"role": "user", "content": _PROMPT}]


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("keys")
    bundle = export("demo", folder / "demo", num_layers=1, sequence=8, slots=2, max_sequence=96)
    (bundle / "chat_template.jinja").write_text("{% for m in messages %}{{ m.content }}{% endfor %}")
    (folder / "keys").write_text("first\nsecond\n")
    return bundle


@pytest.fixture(scope="module")
def server(demo: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    flags = (f"--bundle={demo}", f"--api_key_file={demo.parent / 'keys'}")
    more = ("--allowed_hosts=chat.example,*.internal.example", "--cors_origins=https://page.example")
    with serving(tmp_path_factory.mktemp("per_key"), *flags, *more) as started:
        yield started
        assert started.end() == 0


def _cached(server: ServerProcess, key: str, path: str, **fields: Any) -> tuple[int, int]:
    """Returns the cached tokens that an answer tells, and the tokens of prompts that the engine computed for it."""
    body = {"max_tokens": 2, "temperature": 0, **fields}
    before = _computed(server, key)
    status, answer = server.request(path, body, authorization=f"Bearer {key}")
    assert status == 200, answer
    usage = answer["usage"]
    computed = int(_computed(server, key) - before)
    cached = usage["prompt_tokens_details"]["cached_tokens"]
    assert computed == usage["prompt_tokens"] - cached
    return cached, computed


def _computed(server: ServerProcess, key: str) -> float:
    lines = server.request("/metrics", None, authorization=f"Bearer {key}")[1].splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith("tapeline:engine_prompt_tokens_total"))


@pytest.mark.parametrize(
    ("path", "fields"),
    [("/v1/completions", {"prompt": _OTHER}), ("/v1/chat/completions", {"messages": _MESSAGES})],
)
def test_a_key_reuses_its_own_prompts_alone(server: ServerProcess, path: str, fields: dict[str, Any]) -> None:
    cached, whole = _cached(server, "first", path, **fields)
    assert cached == 0
    assert _cached(server, "first", path, **fields)[0] > 0
    assert _cached(server, "second", path, **fields) == (0, whole)
    assert _cached(server, "second", path, **fields)[0] > 0
    for turn in range(4):  # more than there are slots: rows change hands, and the store has the rest
        assert _cached(server, ("first", "second")[turn % 2], path, **fields)[0] > 0


def test_guessing_a_prompt_of_another_key_shows_nothing(server: ServerProcess) -> None:
    for text in (
        "the spring of hope, it was the winter",
        "we had everything before us, we had",
        "the period was so far",
    ):
        _cached(server, "first", "/v1/completions", prompt=f"{text} of despair")
        assert _cached(server, "second", "/v1/completions", prompt=f"{text} of despair?")[0] == 0
        assert _cached(server, "first", "/v1/completions", prompt=f"{text} of despair?")[0] > 0


def test_a_server_can_share_prefixes_or_reuse_none(demo: Path, tmp_path: Path) -> None:
    keys = f"--api_key_file={demo.parent / 'keys'}"
    fields: dict[str, Any] = {"path": "/v1/completions", "prompt": _PROMPT}
    with serving(tmp_path / "shared", f"--bundle={demo}", keys, "--prefix_cache=shared") as shared:
        assert _cached(shared, "first", **fields)[0] == 0
        assert _cached(shared, "second", **fields)[0] > 0
    with serving(tmp_path / "off", f"--bundle={demo}", keys, "--prefix_cache=off") as off:
        assert [_cached(off, "first", **fields)[0] for _ in range(3)] == [0, 0, 0]


def test_hosts_and_origins(server: ServerProcess, demo: Path, tmp_path: Path) -> None:
    def models(**headers: str) -> tuple[int, str | None]:
        status, answer = server.request("/v1/models", None, authorization="Bearer first", **headers)
        return status, answer["error"]["code"] if status != 200 else None

    for host in (f"127.0.0.1:{server.port}", "localhost", "Chat.Example.:1", "a.internal.example"):
        assert models(host=host) == (200, None)
    for host in (
        "evil.example",
        "internal.example",
        "10.0.0.1",
        "[fd00::1]:80",
        "tapeline",
        "chat.example@evil.example",
    ):
        assert models(host=host) == (421, "host_not_allowed")

    def says(**headers: str) -> int:
        return server.request("/tokenize", {"prompt": "It was"}, authorization="Bearer first", **headers)[0]

    assert [says(origin=f"http://127.0.0.1:{server.port}"), says(origin="https://page.example"), says()] == [200] * 3
    assert [says(origin="https://evil.example"), says(origin="null")] == [403, 403]

    with serving(tmp_path / "open", f"--bundle={demo}", "--host=0.0.0.0") as reached:  # as in a container
        probes = [reached.request("/health", None, host=host)[0] for host in ("10.42.0.7:8000", "tapeline", "a.b.svc")]
        assert probes == [200] * 3
        assert reached.request("/health", None, host="evil.example")[0] == 421
