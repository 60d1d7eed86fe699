"""``tapeline serve`` with models on demand, in a process of its own."""

import shutil
from pathlib import Path
from typing import Any

import pytest

import tapeline
from tapeline.server import Loading, bundle_bytes
from tests.product._bundles import export
from tests.product._serving import ServerProcess, serving, wait_until

PROMPT = "It was the best of times,"


@pytest.fixture(scope="module")
def bundles(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Directory of three equal bundles: one, two and three."""
    folder = tmp_path_factory.mktemp("bundles")
    export("demo", folder / "one", num_layers=1, slots=2, max_sequence=128)
    for name in ("two", "three"):
        shutil.copytree(folder / "one", folder / name)
    (folder / "notes").mkdir()
    return folder


def complete(server: ServerProcess, name: str) -> str:
    status, body = server.request("/v1/completions", {"model": name, "prompt": PROMPT, "temperature": 0})
    assert status == 200, body
    assert body["model"] == name
    return body["choices"][0]["text"]


def states(server: ServerProcess) -> dict[str, str]:
    return {model["id"]: model["state"] for model in server.request("/v1/models")[1]["data"]}


def events(server: ServerProcess, event: str) -> list[Any]:
    return [line["model"] for line in server.logged() if line["event"] == event]


def test_a_directory_of_bundles(bundles: Path, tmp_path: Path) -> None:
    memory = bundle_bytes(tapeline.Bundle(bundles / "one"), Loading())
    flags = (f"--models_dir={bundles}", f"--models_memory={2 * memory}", "--prefix_cache_memory=256MiB")
    with serving(tmp_path / "server", *flags) as server:
        assert states(server) == {"one": "unloaded", "three": "unloaded", "two": "unloaded"}
        texts = [complete(server, name) for name in ("one", "two", "three", "one")]
        assert len(set(texts)) == 1
        assert texts[0]
        assert events(server, "loaded") == ["one", "two", "three", "one"]
        assert events(server, "unloaded") == ["one", "two"]
        assert server.request("/models/load", {"model": "two"}) == (200, {"success": True})
        assert server.request("/models/unload", {"model": "two"}) == (200, {"success": True})
        assert states(server)["two"] == "unloaded"
        assert server.end() == 0


def test_a_file_of_models(bundles: Path, tmp_path: Path) -> None:
    (bundles / "short.jinja").write_text("{{ messages[0].content }}")
    (bundles / "models.toml").write_text(
        "idle_seconds = 0.5\n"
        "[models.first]\nbundle = 'one'\npinned = true\n"
        "[models.second]\nbundle = 'two'\naliases = ['gpt-4o']\nchat_template = 'short.jinja'\n"
        "prefix_cache_memory = '1MiB'\n"
        "[models.third]\nbundle = 'three'\nidle_seconds = 0\nspeculate = 'prompt_lookup'\n"
    )
    with serving(tmp_path / "server", f"--models_file={bundles / 'models.toml'}") as server:
        assert states(server) == {"first": "ready", "second": "unloaded", "third": "unloaded"}
        said = {"model": "gpt-4o", "messages": [{"role": "user", "content": PROMPT}], "temperature": 0}
        status, answered = server.request("/v1/chat/completions", {**said, "max_tokens": 16})
        assert (status, answered["model"]) == (200, "second")
        assert answered["choices"][0]["message"]["content"]
        assert complete(server, "second") == complete(server, "first")
        assert server.request("/models/unload", {"model": "first"})[0] == 400
        refused = server.request("/v1/completions", {"model": "third", "prompt": PROMPT})
        assert refused[0] == 503  # a bundle that verifies no drafts
        assert "reason" in next(one for one in server.request("/v1/models")[1]["data"] if one["id"] == "third")
        wait_until(lambda: set(events(server, "unloaded")) == {"second"})
        wait_until(lambda: states(server)["second"] == "unloaded")
        assert server.end() == 0
