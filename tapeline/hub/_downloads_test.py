import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf import GGUFWriter

from tapeline.cli import size_text
from tapeline.hub import HubError, HubName, resolve_adapter, resolve_model
from tapeline.hub._listing import HubSettings
from tapeline.hub._server_testing import (
    MODEL,
    SURPLUS,
    WEIGHTS,
    Events,
    HubServer,
    fetch,
    hub_server,
    quick_settings,
    safetensors,
)
from tapeline.hub._snapshot import Snapshot
from transformer_core.checkpoints import SafetensorsCheckpoint
from transformer_core.checkpoints.gguf import GgufCheckpoint


@pytest.fixture(name="server")
def _server() -> Iterator[HubServer]:
    with hub_server() as server:
        yield server


@pytest.fixture(name="settings")
def _settings(server: HubServer, tmp_path: Path) -> HubSettings:
    return quick_settings(server, tmp_path / "cache")


def test_only_needed_files_are_downloaded(server: HubServer, settings: HubSettings) -> None:
    commit = server.add("org/name", MODEL).refs["main"]
    events = Events()
    location = fetch(settings, "org/name", events=events)
    files = ["config.json", "model.safetensors", "tokenizer.json"]
    assert sorted(path.name for path in location.path.iterdir()) == files
    assert (location.path / "model.safetensors").read_bytes() == WEIGHTS
    assert location.facts == {
        "repository": "org/name",
        "revision": "main",
        "commit": commit,
        "sha256": {name: hashlib.sha256(MODEL[name]).hexdigest() for name in files},
    }
    total = sum(len(MODEL[name]) for name in files)
    assert [(event.text, event.done, event.total) for event in events][-1:] == [("download org/name", total, total)]
    assert not list(settings.cache.rglob(".tapeline-unchecked/*"))
    with SafetensorsCheckpoint(location.path) as checkpoint:
        assert checkpoint.read("w")[6, 4999] == 34_999


def test_a_second_time_asks_for_the_listing_only(server: HubServer, settings: HubSettings) -> None:
    server.add("org/name", MODEL)
    location = fetch(settings, "org/name")
    server.requests.clear()
    assert fetch(settings, "org/name") == location
    assert [path for _, path, _ in server.requests] == ["/api/models/org/name/revision/main"]


def test_all_files_are_of_one_commit_though_the_branch_moves(server: HubServer, settings: HubSettings) -> None:
    repository = server.add("org/name", MODEL)
    first = repository.refs["main"]
    moved = {**MODEL, "config.json": b'{"a": 2}', "model.safetensors": safetensors(w=np.zeros((3, 2), np.float32))}
    server.listed = lambda: (repository.commit(moved), None)[1]
    location = fetch(settings, "org/name")
    assert location.facts["commit"] == first != repository.refs["main"]
    assert (location.path / "config.json").read_bytes() == b'{"a": 1}'
    assert (location.path / "model.safetensors").read_bytes() == WEIGHTS
    assert fetch(settings, "org/name").facts["commit"] == repository.refs["main"]


def test_revisions_are_branches_tags_and_commits(server: HubServer, settings: HubSettings) -> None:
    repository = server.add("org/name", MODEL)
    first = repository.refs["main"]
    second = repository.commit({**MODEL, "config.json": b'{"a": 3}'}, "refs/pr/1")
    assert fetch(settings, "org/name@refs/pr/1").facts["commit"] == second
    assert fetch(settings, f"org/name@{first}").facts["commit"] == first


def test_folders_of_modules_are_those_of_modules_json(server: HubServer, settings: HubSettings) -> None:
    """Old repositories of sentence-transformers have the model in 0_Transformer; others name folders as they like."""
    kind = "sentence_transformers.models."
    modules = [
        {"idx": 0, "name": "0", "path": "0_Transformer", "type": f"{kind}Transformer"},
        {"idx": 1, "name": "1", "path": "mean", "type": f"{kind}Pooling"},
        {"idx": 2, "name": "2", "path": "matrix", "type": f"{kind}Dense"},
    ]
    wanted = {
        "modules.json": json.dumps(modules).encode(),
        "0_Transformer/config.json": b"{}",
        "0_Transformer/model.safetensors": WEIGHTS,
        "0_Transformer/sentence_bert_config.json": b"{}",
        "0_Transformer/vocab.txt": b"a",
        "mean/config.json": b"{}",
        "matrix/config.json": b"{}",
        "matrix/model.safetensors": WEIGHTS,
    }
    others = {"0_Transformer/pytorch_model.bin": b"1", "1_Other/config.json": b"{}", "matrix/pytorch_model.bin": b"1"}
    server.add("org/name", {**wanted, **others})
    location = fetch(settings, "org/name")
    there = [path.relative_to(location.path).as_posix() for path in location.path.rglob("*") if path.is_file()]
    assert sorted(there) == sorted(wanted)
    shard = "model-00001-of-00001.safetensors"
    index = json.dumps({"weight_map": {"w": shard}}).encode()
    sharded = {key: value for key, value in wanted.items() if key != "0_Transformer/model.safetensors"}
    sharded |= {"0_Transformer/model.safetensors.index.json": index, f"0_Transformer/{shard}": WEIGHTS}
    server.add("org/sharded", sharded)
    with SafetensorsCheckpoint(fetch(settings, "org/sharded").path / "0_Transformer") as checkpoint:
        assert checkpoint.read("w")[6, 4999] == 34_999
    server.add(
        "org/pickle",
        {**{key: b"{}" for key in wanted if key.endswith(".json")}, **others, "modules.json": wanted["modules.json"]},
    )
    with pytest.raises(
        HubError, match=r"0_Transformer of org/pickle at main .* only pytorch_model.bin: a pickle can run"
    ):
        fetch(settings, "org/pickle")


def test_shards_are_those_of_the_index(server: HubServer, settings: HubSettings) -> None:
    shards = {
        f"model-0000{number}-of-00002.safetensors": safetensors(
            **{f"w{number}": np.full((number, 3), number, np.float32)}
        )
        for number in (1, 2)
    }
    index = json.dumps({"weight_map": {f"w{number}": name for number, name in enumerate(shards, 1)}}).encode()
    surplus = {"model-00003-of-00002.safetensors": SURPLUS}
    server.add("org/name", {"config.json": b"{}", "model.safetensors.index.json": index, **shards, **surplus})
    location = fetch(settings, "org/name")
    with SafetensorsCheckpoint(location.path) as checkpoint:
        assert sorted(checkpoint.keys()) == ["w1", "w2"]
    assert not (location.path / "model-00003-of-00002.safetensors").exists()
    server.add("org/less", {"config.json": b"{}", "model.safetensors.index.json": index, **dict([*shards.items()][:1])})
    with pytest.raises(HubError, match=r"names 'model-00002-of-00002\.safetensors', not among the files there"):
        fetch(settings, "org/less")


def test_headers_are_ranged_requests(server: HubServer, settings: HubSettings) -> None:
    names = {f"tensor_{number:05d}": np.zeros((1, 2), np.float32) for number in range(1500)}  # a header over 64 KiB
    weights = safetensors(**names) + b""
    server.add("org/name", {**MODEL, "model.safetensors": weights})
    events = Events()
    name = HubName("org/name")
    with Snapshot(name, events, settings).model("headers") as location:
        with SafetensorsCheckpoint(location.path) as checkpoint:
            assert sorted(checkpoint.keys()) == sorted(names)
        assert (location.path / "config.json").read_bytes() == MODEL["config.json"]
        assert location.facts["sha256"]["model.safetensors"] == hashlib.sha256(weights).hexdigest()
        assert (location.path / "model.safetensors").stat().st_size == len(weights)
    asked = [given for _, path, given in server.requests if path.endswith("model.safetensors") and "/cdn/" in path]
    assert asked == ["bytes=0-65535", f"bytes=65536-{8 + int.from_bytes(weights[:8], 'little') - 1}"]
    assert [str(event) for event in events][-1] == (
        f"org/name: only headers are read; an export downloads {size_text(len(weights))} (model.safetensors)"
    )
    server.ranges = False
    with Snapshot(name, events, settings).model("headers") as location, SafetensorsCheckpoint(location.path) as whole:
        assert sorted(whole.keys()) == sorted(names)


def test_no_weights_are_asked_for_where_none_are_wanted(server: HubServer, settings: HubSettings) -> None:
    server.add("org/name", MODEL)
    location = fetch(settings, "org/name", "config")
    assert sorted(path.name for path in location.path.iterdir()) == ["config.json", "tokenizer.json"]
    assert not [path for _, path, _ in server.requests if "safetensors" in path]


def gguf(path: Path, *, split: tuple[int, int] | None = None) -> bytes:
    """The bytes of a GGUF file with one tensor, whose metadata are longer than its data."""
    writer = GGUFWriter(str(path), "llama")
    writer.add_array("tokenizer.ggml.tokens", [f"token {number}" for number in range(3000)])
    if split is not None:
        writer.add_uint16("split.no", split[0])
        writer.add_uint16("split.count", split[1])
        writer.add_int32("split.tensors.count", split[1])
    writer.add_tensor(f"t{split[0] if split else 0}.weight", np.arange(64, dtype=np.float32).reshape(2, 32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path.read_bytes()


@pytest.fixture(name="ggufs")
def _ggufs(server: HubServer, tmp_path: Path) -> dict[str, bytes]:
    whole = gguf(tmp_path / "x.gguf")
    parts = {f"BF16/m-BF16-0000{i + 1}-of-00002.gguf": gguf(tmp_path / "x.gguf", split=(i, 2)) for i in range(2)}
    names = ("m-Q4_K_M.gguf", "m-Q4_K_S.gguf", "m.Q8_0.gguf", "m-UD-Q8_0.gguf", "mmproj-Q4_K_M.gguf")
    files = {**dict.fromkeys(names, whole), **parts, "README.md": b""}
    server.add("org/name", files)
    return files


def test_a_quantisation_names_its_file(server: HubServer, settings: HubSettings, ggufs: dict[str, bytes]) -> None:
    location = fetch(settings, "org/name:q4_k_m")
    assert location.path.name == "m-Q4_K_M.gguf"
    assert location.path.read_bytes() == ggufs["m-Q4_K_M.gguf"]
    assert list(location.facts["sha256"]) == ["m-Q4_K_M.gguf"]
    assert fetch(settings, "org/name:m-UD-Q8_0.gguf").path.name == "m-UD-Q8_0.gguf"
    assert server.sent() == ["m-Q4_K_M.gguf"]  # the other file has the same content, which the cache holds once


def test_all_parts_of_a_split_file_come(settings: HubSettings, ggufs: dict[str, bytes]) -> None:
    for text in ("org/name:BF16", "org/name:BF16/m-BF16-00002-of-00002.gguf"):
        location = fetch(settings, text)
        with GgufCheckpoint(location.path) as checkpoint:
            assert sorted(checkpoint.keys()) == ["t0.weight", "t1.weight"]
        assert len(location.facts["sha256"]) == 2
        assert set(location.facts["sha256"]) < set(ggufs)


def test_headers_of_gguf_files_are_enough(
    server: HubServer, settings: HubSettings, ggufs: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tapeline.hub._download._GGUF_FIRST", 4096)
    name = HubName("org/name", file="m.Q8_0.gguf")
    with Snapshot(name, Events(), settings).model("headers") as location, GgufCheckpoint(location.path) as checkpoint:
        assert checkpoint.spec("t0.weight").shape == (2, 32)
        tokens: Any = checkpoint.metadata["tokenizer.ggml.tokens"]
        assert len(tokens) == 3000
    asked = [given for _, path, given in server.requests if "/cdn/" in path]
    assert asked[:2] == ["bytes=0-4095", "bytes=4096-8191"]
    assert len(asked) > 2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "org/name",
            r"org/name at main \([0-9a-f]{12}\) holds GGUF files: name one .*:Q4_K_M: .*m-Q4_K_S\.gguf \(Q4_K_S, ",
        ),
        ("org/name:Q8_0", r"Q8_0 could be m-UD-Q8_0\.gguf, m\.Q8_0\.gguf: name the file"),
        ("org/name:Q4_K", r"has no GGUF file of 'Q4_K': name one of its files or quantisations, .*m-Q4_K_M\.gguf"),
        ("org/name:m-Q4_K_N.gguf", r"has no file 'm-Q4_K_N\.gguf'; did you mean .*'m-Q4_K_M\.gguf'.*\? name one of"),
    ],
)
def test_an_ambiguous_quantisation_lists_what_there_is(
    settings: HubSettings, ggufs: dict[str, bytes], text: str, message: str
) -> None:
    assert ggufs
    with pytest.raises(HubError, match=message):
        fetch(settings, text)


def test_the_only_gguf_file_needs_no_name(server: HubServer, settings: HubSettings, tmp_path: Path) -> None:
    server.add("org/one", {"one-Q4_0.gguf": gguf(tmp_path / "x.gguf"), "README.md": b""})
    assert fetch(settings, "org/one").path.name == "one-Q4_0.gguf"


@pytest.mark.parametrize(
    ("files", "message"),
    [
        (
            {"config.json": b"{}", "pytorch_model.bin": b"x"},
            r"no model\.safetensors and no .*index\.json, only pytorch_",
        ),
        ({"adapter_config.json": b"{}"}, "is an adapter: give its base model as `model` and this name as `adapter`"),
        ({"model.safetensors": WEIGHTS, "README.md": b""}, r"has no config\.json, .*: it holds README\.md, model"),
        ({"config.json": b"{}", "README.md": b""}, r"no model\.safetensors and no .*: it holds README\.md, config"),
        ({"a-00001-of-00002.gguf": b"x"}, r"'a-00002-of-00002\.gguf' is missing, one of 2 parts of a model"),
        ({}, r"it holds nothing"),
    ],
)
def test_a_repository_without_a_model_says_what_it_holds(
    server: HubServer, settings: HubSettings, files: dict[str, bytes], message: str
) -> None:
    server.add("org/name", files)
    with pytest.raises(HubError, match=message):
        fetch(settings, "org/name")


def test_offline_takes_what_the_cache_has(server: HubServer, settings: HubSettings) -> None:
    server.add("org/name", MODEL)
    location = fetch(settings, "org/name")
    server.requests.clear()
    offline = HubSettings("http://127.0.0.1:1", settings.cache, offline=True)
    again = fetch(offline, "org/name")
    assert (again.path, again.facts) == (location.path, location.facts)
    assert fetch(offline, f"org/name@{location.facts['commit']}").path == location.path
    (location.path / "model.safetensors").unlink()
    with pytest.raises(HubError, match=r"the cache of the hub's org/name at main .* has no model\.safetensors"):
        fetch(offline, "org/name")
    with pytest.raises(HubError, match=r"HF_HUB_OFFLINE is set; the cache .* has no org/name at v2"):
        fetch(offline, "org/name@v2")
    assert not server.requests


def test_adapters_have_two_files(
    server: HubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: HubSettings
) -> None:
    monkeypatch.setattr(HubSettings, "from_environment", lambda: settings)
    files = {"adapter_config.json": b"{}", "adapter_model.safetensors": WEIGHTS, "optimizer.pt": b""}
    server.add("org/lora", files)
    location = resolve_adapter("org/lora", tmp_path / "org/lora")
    assert sorted(path.name for path in location.path.iterdir()) == ["adapter_config.json", "adapter_model.safetensors"]
    server.add("org/name", MODEL)
    with pytest.raises(
        HubError, match=r"adapter=org/name: there is no .*name, and org/name at .* has no adapter_config"
    ):
        resolve_adapter("org/name", tmp_path / "org/name")
    with resolve_model("org/name", tmp_path / "org/name") as model:
        assert model.facts["repository"] == "org/name"
