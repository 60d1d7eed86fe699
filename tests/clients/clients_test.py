"""Clients that are in the lock, in processes of their own, against ``tapeline serve`` with a tiny model.

The other clients need the network to be installed: `python -m tests.clients all` runs them.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clients._environments import CLIENTS, HERE, Client, results
from tests.clients._model import SAID, export_model
from tests.product._serving import ServerProcess, serving


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return export_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, bundle: Path) -> Iterator[ServerProcess]:
    with serving(tmp_path_factory.mktemp("server"), f"--bundle={bundle}") as started:
        yield started
        assert started.end() == 0


@pytest.mark.parametrize("name", ["openai", "llm"])
def test_a_client(name: str, server: ServerProcess, bundle: Path) -> None:
    command = [sys.executable, str(CLIENTS[name].script)]
    done = list(results(command, server.url.removesuffix("/v1"), bundle.name, bundle, sys.path))
    assert [result["check"] for result in done] == ["chat", "stream", "tools", "structured", "error"]
    for result in done:
        assert result["ok"], result["detail"]


def test_the_model_says_and_calls_what_its_script_has(server: ServerProcess) -> None:
    messages = [{"role": "user", "content": "Weather?"}]
    tool = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}
    plain = server.request("/v1/chat/completions", {"messages": messages})[1]["choices"][0]
    assert plain["message"]["content"] == "".join(SAID)
    called = server.request("/v1/chat/completions", {"messages": messages, "tools": [tool]})[1]["choices"][0]
    (call,) = called["message"]["tool_calls"]
    assert json.loads(call["function"]["arguments"]) == {"city": "Rome"}


def test_a_check_that_fails_is_told(tmp_path: Path) -> None:
    script = tmp_path / "run_wrong_client.py"
    script.write_text(
        f"import sys\nsys.path.insert(0, {str(HERE)!r})\nfrom _checks import equal, raises, run\n"
        "run(good=lambda: equal(1, 1), wrong=lambda: equal(1, 2),\n"
        "    silent=lambda: raises(lambda: 3, ValueError, match=''))\n"
    )
    good, wrong, silent = results([sys.executable, str(script)], "http://127.0.0.1:1", "none", tmp_path)
    assert [one["ok"] for one in (good, wrong, silent)] == [True, False, False]
    assert "expected 2; found 1" in wrong["detail"]
    assert "expected ValueError; the call returned 3" in silent["detail"]
    script.write_text("raise SystemExit('cannot begin')")
    with pytest.raises(RuntimeError, match="cannot begin"):
        list(results([sys.executable, str(script)], "http://127.0.0.1:1", "none", tmp_path))


@pytest.mark.parametrize("client", CLIENTS.values(), ids=CLIENTS)
def test_versions_are_pinned_and_in_the_docs(client: Client) -> None:
    assert client.script.is_file()
    page = (HERE.parents[1] / "docs" / "serving-api.md").read_text(encoding="utf-8")
    assert f"| `{client.name}` | {client.version} |" in page
    if not client.node:
        lines = client.pins.read_text(encoding="utf-8").splitlines()
        assert lines
        assert all("==" in line for line in lines)
