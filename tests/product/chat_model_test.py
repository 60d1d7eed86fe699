"""tools:chat with a model: exported into the user's cache, found there again, and talked with."""

import io
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lang_core import InputError
from tapeline.bundle import Bundle
from tapeline.demo import write_demo_checkpoint
from tapeline.exporting import cached_export, cached_export_early
from tests.goldens.cases import CASES
from tests.goldens.encoders.cases import ENCODER_CASES
from tests.goldens.encoders.files import write_encoder_checkpoint
from tests.goldens.gguf_files import write_gguf
from tests.product._bundles import Finished, export, invoke, stablehlo_here

Chat = Callable[..., Finished]
_TEMPLATE = "{% for m in messages %}{{ m.content }}{% endfor %}"
_FLAGS = ("--device=local-sync", "--max_new_tokens=4", "--ignore_eos")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "demo model"
    path.mkdir()
    write_demo_checkpoint(path)
    (path / "chat_template.jinja").write_text(_TEMPLATE)
    return path


@pytest.fixture
def chat(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Chat:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("BUILD_WORKING_DIRECTORY", str(tmp_path))

    def run(*flags: str, lines: str = "") -> Finished:
        monkeypatch.setattr("sys.stdin", io.StringIO(lines))
        with stablehlo_here():
            return invoke("chat", capsys, *flags)

    return run


def test_a_model_is_exported_once_and_answers(chat: Chat, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flags = (f"--model={model}", "--max_sequence=64", *_FLAGS)
    lines = "It was\n\nthe worst\n/reset\nIt was\n/help\n/quit\nnever read\n"
    first = chat(*flags, lines=lines)
    assert first.code == 0, first.err
    assert "verifying ..." in first.err
    answers = first.out.splitlines()
    assert answers[0] == answers[2] != answers[1]
    assert len(answers) == 3
    monkeypatch.setattr("tapeline.exporting._bundle_cache.export", lambda *_, **__: pytest.fail("exported again"))
    again = chat(*flags, lines=lines)
    assert (again.code, again.out) == (0, first.out)
    assert "verifying" not in again.err
    assert "one message per line; /reset clears the conversation" in again.err  # /help
    one = chat(*flags, "--prompt=It was")
    assert one.out == f"{answers[0]}\n"


@pytest.mark.parametrize("name", ["demo", "without", "without.gguf"])
def test_a_model_without_a_template_is_refused_before_it_is_exported(
    name: str, chat: Chat, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tapeline.exporting._bundle_cache.export", lambda *_, **__: pytest.fail("exported"))
    without = tmp_path / "without"
    without.mkdir()
    write_demo_checkpoint(without)
    write_gguf(tmp_path / "without.gguf", CASES["qwen3"])
    done = chat(f"--model={name}", "--prompt=It was")
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith(f"error: --chat: {name} has no chat template, neither chat_template.jinja nor chat_")


def test_flags_that_contradict_each_other(chat: Chat, model: Path, tmp_path: Path) -> None:
    for flags, message in {
        (): "error: give either --bundle or --model",
        ("--bundle=b", "--model=m"): "error: give either --bundle or --model",
        ("--bundle=b", "--dtype=bf16", "--export_again"): (
            "error: --dtype, --export_again: options of an export go with --model; a --bundle is exported already"
        ),
        (f"--model={model}", "--dtype=f31"): "error: --dtype=f31: unknown 'f31': known are f32, bf16, f16",
        ("--model=nowhere",): f"error: --model=nowhere: there is no directory or file {tmp_path / 'nowhere'}: give",
    }.items():
        done = chat(*flags)
        assert done.code == 2
        assert message in done.err


@pytest.fixture
def exported(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Lets exports into the cache write a copy of a small bundle; a list of those that were written."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    made = export(model, tmp_path / "bundle", target=(), verify="none", weights="none", num_layers=1)
    written: list[Path] = []

    def copied(name: str, path: Path, **options: Any) -> Bundle:
        assert not path.exists() or written
        shutil.copytree(made, path, dirs_exist_ok=True)
        written.append(path)
        return Bundle(path)

    monkeypatch.setattr("tapeline.exporting._bundle_cache.export", copied)
    return written


def test_a_bundle_is_found_by_files_and_options(exported: list[Path], model: Path, tmp_path: Path) -> None:
    mine = tmp_path / "copy"
    shutil.copytree(model, mine)
    first = cached_export(mine, max_sequence=64)
    assert first.path.parent == tmp_path / "cache" / "tapeline" / "bundles"
    assert first.path.name.startswith("copy-")
    assert cached_export("copy", base=tmp_path, max_sequence=64).path == first.path
    assert len(exported) == 1
    cached_export(mine, max_sequence=65)
    os.utime(mine / "config.json", (7, 7))
    cached_export(mine, max_sequence=64)
    assert len(set(exported)) == 3
    cached_export(mine, max_sequence=64, again=True)
    (exported[2] / "kernel_config.json").write_text("damaged")
    cached_export(mine, max_sequence=64)
    assert exported[2:] == [exported[2]] * 3
    assert cached_export("demo").path.name.startswith("demo-")


def test_a_server_s_bundle_serves_a_conversation(exported: list[Path], model: Path) -> None:
    served = cached_export(model, slots=4, max_sequence=64).path
    assert cached_export(model, or_slots=4, max_sequence=64).path == served
    assert len(exported) == 1
    assert cached_export(model, or_slots=4, max_sequence=65).path != served
    assert cached_export(model, or_slots=3, max_sequence=64).path != served  # the bundle of one sequence is there now
    assert cached_export(model, or_slots=4, max_sequence=64).path == exported[2]
    assert len(exported) == 3


def test_slots_if_the_model_has_rows(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server's bundle of an embedder is without slots, which nobody asked for."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    embedder = tmp_path / "embedder"
    embedder.mkdir()
    write_encoder_checkpoint(embedder, ENCODER_CASES["bert"])
    small: Any = {"target": (), "verify": "none", "weights": "none", "num_layers": 1}

    def served(path: Path) -> Bundle:
        bundle = cached_export_early(path, None, slots_if_any=2, **small)
        assert cached_export_early(path, None, slots_if_any=2, **small).path == bundle.path
        return bundle

    assert served(model).config.model["slots"] == 2
    assert served(model).path == cached_export(model, slots=2, **small).path
    bundle = served(embedder)
    assert "slots" not in bundle.config.model
    assert [point.name for point in bundle.config.entry_points][:1] == ["forward"]
    with pytest.raises(InputError, match="slots: expected none, for BertModel has no caches"):
        cached_export(embedder, slots=2, **small)


@pytest.mark.parametrize(("most", "alike"), [(32, False), (64, True)])
def test_not_if_rope_depends_on_the_length(
    model: Path, most: int, alike: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    mine = Path(shutil.copytree(model, tmp_path / "mine"))
    config = json.loads((mine / "config.json").read_text())
    config |= {"max_position_embeddings": most, "rope_scaling": {"rope_type": "dynamic", "factor": 2.0}}
    (mine / "config.json").write_text(json.dumps(config))
    options: Any = {"max_sequence": 64, "target": (), "verify": "none", "weights": "none", "num_layers": 1}
    served = cached_export(mine, slots=4, **options).path
    assert (cached_export(mine, or_slots=4, **options).path == served) is alike


def test_the_least_recently_used_bundles_are_removed(
    exported: list[Path], model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for i in range(3):
        cached_export(model, max_sequence=64 + i)
    os.utime(exported[0], (9, 9))
    cached_export(model, max_sequence=64)  # used: now the youngest
    os.utime(exported[1], (9, 9))
    size = sum(file.stat().st_size for file in exported[0].iterdir())
    monkeypatch.setenv("TAPELINE_BUNDLE_CACHE", f"{3 * size + size // 2}B")
    cached_export(model, max_sequence=99)
    assert [path.exists() for path in exported] == [True, False, True, True]
    monkeypatch.setenv("TAPELINE_BUNDLE_CACHE", "1B")
    cached_export(model, max_sequence=100)
    assert [path.exists() for path in exported] == [False] * 4 + [True]  # what was asked for stays
    monkeypatch.setenv("TAPELINE_BUNDLE_CACHE", "some")
    with pytest.raises(InputError, match="TAPELINE_BUNDLE_CACHE=some: expected a size such as"):
        cached_export(model)


def test_a_cache_that_cannot_be_written(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "cache").write_text("in the way")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with pytest.raises(InputError, match=r"the cache of bundles .* cannot be written .*: set XDG_CACHE_HOME"):
        cached_export(model)
