"""The prefix cache of ``tapeline serve`` on disk, which outlives the process."""

import json
from pathlib import Path
from typing import Any

import pytest

from lang_core import f32
from tapeline.demo import write_demo_checkpoint
from tests.product._bundles import export
from tests.product._serving import ServerProcess, serving
from transformer_core.models import write_random_model

PROMPT = "It was the best of times, it was the worst of times, it was the age of wisdom, it was the age of foolishness,"


@pytest.fixture(scope="module", params=["whole", "quantized pages"])
def bundle(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bundle")
    write_demo_checkpoint(folder / "model")
    options: dict[str, Any] = {}
    if request.param == "quantized pages":  # blocks are of 32 numbers, twice as many as the demo's heads have
        config = json.loads((folder / "model/config.json").read_text()) | {"head_dim": 32}
        (folder / "wide.json").write_text(json.dumps(config))
        write_random_model(folder / "model", folder / "wide.json", f32)
        options = {"pages": 20, "page_tokens": 32, "kv_cache": "q8_0"}
    return export(folder / "model", folder / "demo", num_layers=1, slots=2, max_sequence=256, **options)


def ask(server: ServerProcess, key: str, prompt: str = PROMPT) -> tuple[Any, int]:
    """Returns the answer with its log probabilities, and the number of tokens of the prompt that were reused."""
    body = {"prompt": prompt, "temperature": 0, "max_tokens": 8, "logprobs": 3}
    status, answered = server.request("/v1/completions", body, authorization=f"Bearer {key}")
    assert status == 200, answered
    return answered["choices"][0], answered["usage"]["prompt_tokens_details"]["cached_tokens"]


def events(server: ServerProcess) -> list[str]:
    return [line["event"] for line in server.logged() if "prefixes" in line["event"]]


def test_prefixes_survive_a_restart_and_damage_is_left_out(bundle: Path, tmp_path: Path) -> None:
    (tmp_path / "keys").write_text("one\ntwo\n")
    folder = tmp_path / "prefixes"
    flags = (f"--bundle={bundle}", f"--api_key_file={tmp_path / 'keys'}", f"--prefix_cache_dir={folder}")
    with serving(tmp_path / "a", *flags) as server:
        expected, cached = ask(server, "one")
        assert cached == 0
        assert server.end() == 0
        assert events(server) == ["prefixes saved"]
    (file,) = folder.glob("*.prefixes")
    assert PROMPT.encode() not in file.read_bytes()
    with serving(tmp_path / "b", *flags) as server:
        assert ask(server, "two") == (expected, 0)
        again, cached = ask(server, "one")
        assert again == expected
        assert cached > 20
        longer, cached = ask(server, "one", PROMPT + " it was")
        assert cached > 20
        assert server.end() == 0
        assert events(server) == ["prefixes loaded", "prefixes saved"]
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    with serving(tmp_path / "c", *flags) as server:
        assert ask(server, "one")[0] == expected
        assert ask(server, "one", PROMPT + " it was")[0] == longer
        assert set(events(server)) <= {"damaged prefixes", "prefixes loaded", "prefixes not loaded"}
        assert events(server)[0] != "prefixes loaded"
