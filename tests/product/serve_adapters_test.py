"""``tapeline serve`` with LoRA adapters that requests choose, in a process of its own."""

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy

from lang_core import encoding_named
from tapeline.demo import write_demo_checkpoint
from tests.product import _bundles
from tests.product._adapters import write_adapter
from tests.product._bundles import export, invoke, refused
from tests.product._serving import ServerProcess, serving

compiled_once = _bundles.compiled_once

PROMPT = "It was the best of times, it was the worst of times,"
_SIZES: Any = {"num_layers": 2, "slots": 2, "max_sequence": 96, "sequence": 8}
_BOUND = 2e-3  # of log probabilities: products with packed weights round activations to 16 bits


@pytest.fixture(scope="module", name="folder")
def _folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Directory of a model whose matrices are exactly those of its q8_0 form, and adapters one, two and three."""
    folder = tmp_path_factory.mktemp("adapters")
    write_demo_checkpoint(folder / "model")
    file, encoding = folder / "model" / "model.safetensors", encoding_named("q8_0")
    tensors = safetensors.numpy.load_file(file)
    for name, tensor in tensors.items():
        if tensor.ndim == 2:
            tensors[name] = encoding.unpacked(encoding.pack(tensor.astype(np.float32)))
    safetensors.numpy.save_file(tensors, file)
    shapes = {name: tensor.shape for name, tensor in tensors.items() if "layers." in name and tensor.ndim == 2}
    known = {name: shape for name, shape in shapes.items() if int(name.split("layers.")[1].split(".")[0]) < 2}
    adapters = folder / "adapters"
    write_adapter(adapters / "one", known, rank=4, alpha=4, seed=1)
    write_adapter(adapters / "two", known, rank=7, alpha=6, seed=2, modules=("q_proj", "v_proj"))
    write_adapter(adapters / "three", known, rank=3, alpha=4, seed=3, modules=("down_proj", "up_proj"))
    write_adapter(adapters / "wide", known, rank=9, alpha=4, seed=4)
    return folder


@pytest.fixture(scope="module", name="bundle")
def _bundle(folder: Path, compiled_once: None) -> Path:
    options = {**_SIZES, "adapters": 2, "adapter_rank": 7}
    return export(folder / "model", folder / "base", quantize="q8_0", verify="iree", **options)


@pytest.fixture(scope="module", name="server")
def _server(folder: Path, bundle: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    flags = (f"--adapter=one={folder / 'adapters' / 'one'}", f"--adapters_dir={folder / 'adapters'}")
    with serving(tmp_path_factory.mktemp("server"), str(bundle), *flags) as server:
        yield server


def complete(server: ServerProcess, model: str, prompt: str = PROMPT, **fields: Any) -> dict[str, Any]:
    body = {"model": model, "prompt": prompt, "temperature": 0, "max_tokens": 12, "logprobs": 0, **fields}
    status, answered = server.request("/v1/completions", body)
    assert status == 200, answered
    assert answered["model"] in (model, f"base:{model}")
    return answered["choices"][0]


def prompt_logprobs(server: ServerProcess, model: str) -> np.ndarray:
    """Returns log probabilities of the prompt's tokens but the first."""
    choice = complete(server, model, echo=True, max_tokens=1)
    return np.array(choice["logprobs"]["token_logprobs"][1:-1])


def names(server: ServerProcess) -> dict[str, str | None]:
    return {model["id"]: model.get("parent") for model in server.request("/v1/models")[1]["data"]}


def load(server: ServerProcess, name: str, path: str) -> tuple[int, Any]:
    return server.request("/v1/load_lora_adapter", {"lora_name": name, "lora_path": path})


def unload(server: ServerProcess, name: str) -> tuple[int, Any]:
    return server.request("/v1/unload_lora_adapter", {"lora_name": name})


def test_an_answer_is_that_of_the_merged_export(folder: Path, server: ServerProcess, tmp_path: Path) -> None:
    assert names(server) == {"base": None, "one": "base"}
    adapted, base = prompt_logprobs(server, "base:one"), prompt_logprobs(server, "base")
    np.testing.assert_array_equal(adapted, prompt_logprobs(server, "one"))
    export(folder / "model", tmp_path / "merged", adapter=[str(folder / "adapters" / "one")], **_SIZES)
    with serving(tmp_path / "server", str(tmp_path / "merged")) as merged:
        expected = prompt_logprobs(merged, "merged")
    assert np.abs(adapted - expected).max() < _BOUND
    assert np.abs(adapted - base).max() > 0.1


def test_without_an_adapter_the_bits_are_those_of_a_bundle_without_adapters(
    folder: Path, server: ServerProcess, tmp_path: Path
) -> None:
    export(folder / "model", tmp_path / "plain", quantize="q8_0", verify="iree", **_SIZES)
    with serving(tmp_path / "server", str(tmp_path / "plain")) as plain:
        assert complete(plain, "plain", max_tokens=40) == complete(server, "base", max_tokens=40)
        np.testing.assert_array_equal(prompt_logprobs(plain, "plain"), prompt_logprobs(server, "base"))


def test_several_adapters_in_one_step(server: ServerProcess) -> None:
    """Answers that run beside others with other adapters are those of the requests alone, bit for bit."""
    assert load(server, "two", "two") == (200, "Success: LoRA adapter 'two' added successfully.")
    models = ["base", "base:one", "two", "one", "base:two", "base"]
    alone = [complete(server, model, max_tokens=30) for model in models]
    assert len({choice["text"] for choice in alone}) == 3
    together: list[Any] = [None] * len(models)

    def ask(index: int) -> None:
        together[index] = complete(server, models[index], max_tokens=30)

    threads = [threading.Thread(target=ask, args=[index]) for index in range(len(models))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert together == alone
    assert unload(server, "two")[0] == 200


def test_adapters_are_loaded_and_unloaded_while_the_server_runs(server: ServerProcess) -> None:
    assert load(server, "two", "two")[0] == 200
    assert names(server) == {"base": None, "one": "base", "two": "base"}
    first = complete(server, "two")
    status, body = load(server, "three", "three")
    assert status == 400
    assert "keeps 2 adapters at once" in body["error"]["message"]
    assert load(server, "two", "three")[0] == 400  # the name is taken
    assert unload(server, "two") == (200, "Success: LoRA adapter 'two' removed successfully.")
    status, body = server.request("/v1/completions", {"model": "base:two", "prompt": PROMPT})
    assert (status, body["error"]["code"]) == (404, "model_not_found")
    assert "base:one" in body["error"]["message"]
    assert load(server, "two", "three")[0] == 200  # another adapter takes name and place: no prefix is mixed up
    second = complete(server, "two")
    assert second["logprobs"]["token_logprobs"] != first["logprobs"]["token_logprobs"]
    assert unload(server, "two")[0] == 200
    assert load(server, "two", "two")[0] == 200
    assert complete(server, "two") == first
    assert unload(server, "two")[0] == 200
    assert unload(server, "two")[0] == 404


def test_prefixes_are_not_shared_among_adapters(server: ServerProcess) -> None:
    prompt = "There were a king with a large jaw and a queen with a plain face, on the throne of England;"
    body = {"prompt": prompt, "temperature": 0, "max_tokens": 1}
    used = [
        server.request("/v1/completions", {"model": model, **body})[1]["usage"]["prompt_tokens_details"]
        for model in ("base", "one", "base", "one")
    ]
    cached = [details["cached_tokens"] for details in used]
    assert cached[:2] == [0, 0]
    assert min(cached[2:]) > 0


@pytest.mark.parametrize(
    ("path", "status", "message"),
    [
        ("wide", 400, "has rank 9, and the bundle takes ranks up to 7: export it with adapter_rank=9"),
        ("../model", 403, "below the server's directory"),
        ("absent", 404, "no such directory"),
        ("broken", 400, "adapter_config.json"),
    ],
)
def test_adapters_that_are_refused(folder: Path, server: ServerProcess, path: str, status: int, message: str) -> None:
    (folder / "adapters" / "broken").mkdir(exist_ok=True)
    answered = load(server, "other", path)
    assert answered[0] == status, answered
    assert message in answered[1]["error"]["message"]
    assert str(folder) not in json.dumps(answered[1])
    assert names(server) == {"base": None, "one": "base"}


def test_flags_that_are_refused(folder: Path, bundle: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = folder / "adapters" / "one"
    refused(invoke("serve", capsys, str(bundle), "--adapter=one"), "--adapter=one: expected NAME=DIR")
    refused(invoke("serve", capsys, str(bundle), f"--adapter=other:one={one}"), "model 'other' not found")
    refused(invoke("serve", capsys, str(bundle), f"--adapter=base={one}"), "the model has this name")
    refused(invoke("export", capsys, "demo", f"--output={tmp_path / 'b'}", "--adapters=2"), "give --slots too")
