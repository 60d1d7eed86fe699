"""tools:generate --prompt_cache: what a file holds of a prompt is what would be made anew, or it is refused."""

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy

from tests.goldens.cases import CASES
from tests.product import _bundles
from tests.product._bundles import Finished, export_case, invoke

compiled_once = _bundles.compiled_once
pytestmark = pytest.mark.usefixtures("compiled_once")

Generate = Callable[..., Finished]
_FILE = "prompt.cache"
_IDS = [5, 11, 7, 2, 19, 23, 3, 17, 29, 1]


def _ids(*token_ids: int) -> str:
    return f"--token_ids={','.join(map(str, token_ids))}"


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Whole caches, one layer."""
    return export_case(CASES["tinyllama_4x"], tmp_path_factory.mktemp("l"), sequence=4, max_sequence=19, num_layers=1)


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ring caches and whole ones, in bf16."""
    return export_case(CASES["gemma3"], tmp_path_factory.mktemp("g"), sequence=4, max_sequence=19, dtype="bf16")


@pytest.fixture
def generating(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Generate:
    monkeypatch.setenv("BUILD_WORKING_DIRECTORY", str(tmp_path))
    return lambda bundle, *flags: invoke("generate", capsys, f"--bundle={bundle}", *flags)


@pytest.fixture
def logits(generating: Generate, tmp_path: Path) -> Callable[..., tuple[np.ndarray, int]]:
    """The logits of a run with the file, and how many tokens it found there."""

    def run(bundle: Path, *token_ids: int, cached: bool = True) -> tuple[np.ndarray, int]:
        flags = [_ids(*token_ids), "--max_new_tokens=4", "--ignore_eos", "--logits=l.npy", "--stats=s.json"]
        done = generating(bundle, *flags, *([f"--prompt_cache={_FILE}"] if cached else []))
        assert (done.code, done.err) == (0, "")
        return np.load(tmp_path / "l.npy"), json.loads((tmp_path / "s.json").read_text())["prompt_tokens_reused"]

    return run


@pytest.mark.parametrize("which", ["bundle", "mixed"])
def test_any_next_prompt_is_answered_as_without_the_file(
    which: str, logits: Callable[..., tuple[np.ndarray, int]], request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    bundle = request.getfixturevalue(which)
    prompts = [_IDS, _IDS, [*_IDS, 2, 2, 2], [*_IDS[:6], 8, 8, 8], [9, 9]]
    reuses, written = [], []
    for prompt in prompts:
        again, reused = logits(bundle, *prompt)
        np.testing.assert_array_equal(again, logits(bundle, *prompt, cached=False)[0])
        reuses.append(reused)
        held = safetensors.numpy.load_file(tmp_path / _FILE) if which == "bundle" else {}
        written.append(held.get("token_ids", np.empty(0)).tolist())
    assert reuses == ([0, 8, 8, 4, 0] if which == "bundle" else [0, 8, 8, 0, 0])
    if which == "bundle":
        assert written == [_IDS[:8], _IDS[:8], [*_IDS, 2, 2], [*_IDS[:6], 8, 8], [*_IDS[:6], 8, 8]]


def test_the_file_is_plain_and_is_left_alone_where_it_has_all(
    bundle: Path, logits: Callable[..., tuple[np.ndarray, int]], tmp_path: Path
) -> None:
    logits(bundle, *_IDS)
    before = (tmp_path / _FILE).stat()
    held = safetensors.numpy.load_file(tmp_path / _FILE)
    case = CASES["tinyllama_4x"].config
    heads, size = case["num_key_value_heads"], case["hidden_size"] // case["num_attention_heads"]
    assert {name: (array.dtype, array.shape) for name, array in held.items()} == {
        "token_ids": (np.int32, (8,)),
        "layers.0.key_cache": (np.float32, (1, heads, 8, size)),
        "layers.0.value_cache": (np.float32, (1, heads, 8, size)),
        "sha256": (np.uint8, (32,)),
    }
    assert np.abs(held["layers.0.key_cache"]).min() > 0
    logits(bundle, *_IDS[:7])
    after = (tmp_path / _FILE).stat()
    assert (before.st_ino, before.st_mtime_ns) == (after.st_ino, after.st_mtime_ns)
    assert [path.name for path in tmp_path.iterdir() if "partial" in path.name] == []


def _rewritten(path: Path, **metadata: str) -> None:
    with safetensors.safe_open(path, "np") as file:
        kept = dict(file.metadata())
    safetensors.numpy.save_file(safetensors.numpy.load_file(path), path, {**kept, **metadata})


def _flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


def _without(path: Path, name: str) -> None:
    with safetensors.safe_open(path, "np") as file:
        kept = dict(file.metadata())
    tensors = safetensors.numpy.load_file(path)
    safetensors.numpy.save_file({key: array for key, array in tensors.items() if key != name}, path, kept)


def _longer(path: Path) -> None:
    with safetensors.safe_open(path, "np") as file:
        kept = dict(file.metadata())
    tensors = safetensors.numpy.load_file(path)
    tensors["token_ids"] = np.append(tensors["token_ids"], np.int32(1))
    safetensors.numpy.save_file(tensors, path, kept)


_DAMAGES: dict[str, tuple[Callable[[Path], Any], str]] = {
    "cut_off": (lambda f: f.write_bytes(f.read_bytes()[:-9]), "the file is damaged, or no prompt cache: delete it"),
    "empty": (lambda f: f.write_bytes(b""), "the file is empty, expected a safetensors file: the file is damaged"),
    "garbage": (lambda f: f.write_bytes(b"x" * 999), "the file is damaged, or no prompt cache: delete it, or name"),
    "a_bit_of_a_cache": (lambda f: _flip(f, f.stat().st_size - 100), "damaged (its sha256 is another): delete it"),
    "a_bit_of_the_sum": (lambda f: _flip(f, f.stat().st_size - 1), "damaged (its sha256 is another): delete it"),
    "a_cache_is_missing": (lambda f: _without(f, "layers.0.value_cache"), "no tensor 'layers.0.value_cache'"),
    "more_tokens": (_longer, "the file is damaged ('layers.0.key_cache' is f32[1,"),
    "another_schema": (lambda f: _rewritten(f, schema="2"), "schema '2', this version reads schema '1': delete it"),
    "another_bundle": (lambda f: _rewritten(f, bundle="ab"), "made with another bundle, or before this one was exp"),
    "weights": (
        lambda f: safetensors.numpy.save_file({"w": np.ones(3, np.float32)}, f),
        "a safetensors file, but no prompt cache, and it is not written over: delete it, or name another file",
    ),
}  # fmt: skip


@pytest.mark.parametrize("damage", _DAMAGES)
def test_a_file_that_is_no_good_is_refused_and_left_alone(
    damage: str, bundle: Path, logits: Callable[..., Any], generating: Generate, tmp_path: Path
) -> None:
    logits(bundle, *_IDS)
    harm, message = _DAMAGES[damage]
    file = tmp_path / _FILE
    harm(file)
    before = file.read_bytes()
    done = generating(bundle, _ids(*_IDS), f"--prompt_cache={_FILE}")
    assert (done.code, done.out) == (2, "")
    assert "error: --prompt_cache" in done.err
    assert message in done.err
    assert done.err.count("error: ") == 1
    assert file.read_bytes() == before


def _redated(module: Path) -> str:
    """Changes a module, a ZIP file, where nobody looks, in the time of a part; returns its SHA-256."""
    data = bytearray(module.read_bytes())
    data[data.rindex(b"PK\x01\x02") + 12] ^= 1
    module.write_bytes(data)
    return hashlib.sha256(data).hexdigest()


@pytest.mark.parametrize("key", ["module.llvm-cpu.vmfb", "weights.irpa"])
def test_another_module_or_other_weights_are_another_bundle(
    key: str, bundle: Path, logits: Callable[..., Any], generating: Generate, tmp_path: Path
) -> None:
    logits(bundle, *_IDS)
    other = tmp_path / "other"
    shutil.copytree(bundle, other)
    config = json.loads((other / "kernel_config.json").read_text())
    config["sha256"][key] = "0" * 64 if key == "weights.irpa" else _redated(other / key)
    (other / "kernel_config.json").write_text(json.dumps(config))
    done = generating(other, _ids(*_IDS), f"--prompt_cache={_FILE}", "--verify_files=off")
    assert done.code == 2
    assert "made with another bundle" in done.err


def test_what_cannot_be_kept(bundle: Path, generating: Generate, tmp_path: Path) -> None:
    flags = [_ids(1), "--max_new_tokens=1"]
    for more, message in (
        (["--prompt_cache=no/p", *flags], "--prompt_cache=no/p: no file can be written there"),
        (["--prompt_cache=p", "--dump=d", *flags], "--dump shows every call, and --prompt_cache leaves some out"),
    ):
        done = generating(bundle, *more)
        assert (done.code, done.out) == (2, "")
        assert message in done.err
