"""Default sampling of the commands, the server and Python, with one bundle and copies with other recommendations."""

import io
import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

import tapeline
from generation import DEFAULT_SAMPLING, default_sampling
from lang_core import ConfigError
from tests.goldens.cases import CASES
from tests.goldens.gguf_files import write_gguf
from tests.product._bundles import Finished, export, invoke, replace_file
from tests.product._serving import ServerProcess, serving

_PROMPT = "zebra"
_TEMPLATE = "{% for m in messages %}{{ m.content }}{% endfor %}"
_CONFIGS: dict[str, dict[str, Any]] = {
    "silent": {"eos_token_id": 1},
    "greedy": {"do_sample": False, "temperature": 0.9},
    "own": {"do_sample": True, "temperature": 1.7, "top_k": 90, "top_p": 0.99, "repetition_penalty": 1.3},
}
_NAMES = ("temperature", "top_k", "top_p", "min_p", "repetition_penalty")
_CHAT = "/v1/chat/completions"
_ROUTES: dict[str, dict[str, Any]] = {
    _CHAT: {"messages": [{"role": "user", "content": _PROMPT}]},
    "/v1/completions": {"prompt": _PROMPT},
}
Chat = Callable[..., Finished]


@pytest.fixture(scope="module")
def bundles(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Copies of one bundle, of a model that is sure of nothing: its first layer alone."""
    folder = tmp_path_factory.mktemp("bundles")
    made = export("demo", folder / "made", num_layers=1, sequence=8, slots=2, max_sequence=96)
    (made / "chat_template.jinja").write_text(_TEMPLATE)
    for name, config in _CONFIGS.items():
        shutil.copytree(made, folder / name)
        replace_file(folder / name, "generation_config.json", json.dumps(config))
    return {name: folder / name for name in _CONFIGS}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, bundles: dict[str, Path]) -> Iterator[ServerProcess]:
    with serving(tmp_path_factory.mktemp("server"), *(f"--bundle={path}" for path in bundles.values())) as started:
        yield started


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Chat:
    def run(name: str, bundle: Path, *flags: str, lines: str = "") -> Finished:
        monkeypatch.setattr("sys.stdin", io.StringIO(lines))
        return invoke(name, capsys, f"--bundle={bundle}", "--device=local-sync", *flags)

    return run


def _explicit(name: str) -> dict[str, Any]:
    config = asdict(default_sampling(_CONFIGS[name]))
    return {key: config[key] for key in _NAMES}


def _answer(server: ServerProcess, route: str, **fields: Any) -> str:
    status, body = server.request(route, {**_ROUTES[route], "max_tokens": 24, "ignore_eos": True, **fields})
    assert status == 200, body
    choice = body["choices"][0]
    return choice["text"] if "text" in choice else choice["message"]["content"]


@pytest.mark.parametrize("route", _ROUTES)
def test_the_server_samples_as_the_model_recommends(route: str, server: ServerProcess) -> None:
    answers = {name: [_answer(server, route, model=name, seed=seed) for seed in range(4)] for name in _CONFIGS}
    for name, texts in answers.items():
        explicit = [_answer(server, route, model=name, seed=seed, **_explicit(name)) for seed in range(4)]
        assert texts == explicit
    likeliest = _answer(server, route, model="silent", temperature=0)
    assert set(answers["greedy"]) == {likeliest}
    assert len(set(answers["own"])) > 1
    assert len(set(answers["silent"])) > 1
    for name in _CONFIGS:
        assert _answer(server, route, model=name, temperature=0, repetition_penalty=1) == likeliest


def test_a_request_that_gives_the_temperature_keeps_the_rest(server: ServerProcess) -> None:
    for route in _ROUTES:
        for name in _CONFIGS:
            answer = _answer(server, route, model=name, seed=5, temperature=1.2)
            assert answer == _answer(server, route, model=name, seed=5, **{**_explicit(name), "temperature": 1.2})


def test_the_server_says_what_it_uses(server: ServerProcess) -> None:
    models = server.request("/v1/models")[1]["data"]
    assert {model["id"]: model["sampling"] for model in models} == {name: _explicit(name) for name in _CONFIGS}
    assert models[0]["sampling"] == {
        "temperature": 0.8, "top_k": 40, "top_p": 0.95, "min_p": 0.05, "repetition_penalty": 1.0
    }  # fmt: skip


@pytest.mark.parametrize("name", _CONFIGS)
def test_chat_samples_as_the_server_does(
    name: str, bundles: dict[str, Path], server: ServerProcess, command: Chat
) -> None:
    flags = (f"--prompt={_PROMPT}", "--max_new_tokens=24", "--ignore_eos")
    for seed in range(3):
        done = command("chat", bundles[name], *flags, f"--seed={seed}")
        assert done.code == 0, done.err
        assert done.out == _answer(server, _CHAT, model=name, seed=seed) + "\n"
        warm = command("chat", bundles[name], *flags, f"--seed={seed}", "--temperature=1.2")
        assert warm.out == _answer(server, _CHAT, model=name, seed=seed, temperature=1.2) + "\n"
    greedy = command("chat", bundles[name], *flags, "--temperature=0", "--repetition_penalty=1").out
    assert greedy == _answer(server, _CHAT, model="greedy") + "\n"
    assert command("generate", bundles[name], "--chat", *flags).out == greedy  # as in earlier versions
    plain = _answer(server, "/v1/completions", model="greedy") + "\n"
    assert command("generate", bundles[name], *flags).out == plain


def test_a_conversation_repeats_and_another_seed_gives_another(bundles: dict[str, Path], command: Chat) -> None:
    flags = ("--max_new_tokens=12", "--ignore_eos", "--temperature=3", "--top_k=0", "--top_p=1", "--min_p=0")
    lines = "".join(f"{_PROMPT}\n/reset\n" for _ in range(4))
    asked = command("chat", bundles["silent"], *flags, lines=lines).out.splitlines()
    assert (len(asked), len(set(asked))) == (4, 1)
    assert command("chat", bundles["silent"], *flags, "--seed=0", lines=lines).out.splitlines() == asked
    assert command("chat", bundles["silent"], *flags, "--seed=3", lines=lines).out.splitlines() != asked


def test_python_is_greedy_until_sampling_is_asked_for(bundles: dict[str, Path], server: ServerProcess) -> None:
    for name, path in bundles.items():
        with tapeline.load(path, device="local-sync") as model:
            sampling = model.default_sampling
            assert sampling == _explicit(name)
            plain, said = (_answer(server, route, model="greedy") for route in ("/v1/completions", _CHAT))
            options: Any = {"max_new_tokens": 24, "ignore_eos": True}
            assert model.generate(_PROMPT, **options).text == plain
            assert model.chat().ask(_PROMPT, **options).text == said
            sampled = model.generate(_PROMPT, seed=6, **options, **sampling).text
            assert sampled == _answer(server, "/v1/completions", model=name, seed=6)


def test_a_damaged_recommendation_is_refused_by_name(bundles: dict[str, Path], command: Chat, tmp_path: Path) -> None:
    bundle = tmp_path / "damaged"
    shutil.copytree(bundles["silent"], bundle)
    replace_file(bundle, "generation_config.json", '{"temperature": "hot"}')
    done = command("chat", bundle, f"--prompt={_PROMPT}")
    assert (done.code, done.out) == (2, "")
    assert "generation_config.json: field 'temperature': 'hot' is out of range: give a value that is a f" in done.err
    with tapeline.load(bundle, device="local-sync") as model:
        assert model.generate(_PROMPT, max_new_tokens=2).token_ids
        with pytest.raises(ConfigError, match="field 'temperature': 'hot'"):
            _ = model.default_sampling


def test_sampling_keys_of_a_gguf_file_are_in_its_bundle(tmp_path: Path) -> None:
    def add(writer: Any) -> None:
        writer.add_sampling_temp(0.7)
        writer.add_sampling_top_k(20)
        writer.add_sampling_penalty_repeat(1.05)

    plain, keyed = tmp_path / "plain.gguf", tmp_path / "keyed.gguf"
    write_gguf(plain, CASES["llama_gqa"])
    write_gguf(keyed, CASES["llama_gqa"], tokenizer=add)
    options: dict[str, Any] = {"target": (), "verify": "none", "weights": "none", "num_layers": 1}
    bundle = export(plain, tmp_path / "plain", **options)
    assert not (bundle / "generation_config.json").exists()
    bundle = export(keyed, tmp_path / "keyed", **options)
    written = json.loads((bundle / "generation_config.json").read_text())
    assert written == {"temperature": 0.7, "top_k": 20, "repetition_penalty": 1.05}
    assert "generation_config.json" in json.loads((bundle / "kernel_config.json").read_text())["sha256"]
    assert default_sampling(written) != DEFAULT_SAMPLING
