"""Directories of bundles that nobody names, and bundles that an export replaces."""

import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from tapeline.bundle import Bundle
from tapeline.exporting import default_output
from tests.goldens.cases import CASES
from tests.goldens.weights import write_checkpoint
from tests.product._bundles import Finished, invoke, refused
from tests.product._exports import good, place

__all__ = ["good", "place"]

_FAST = ("--target=none", "--verify=none", "--num_layers=1", "--sequence=4", "--max_sequence=8")
Export = Callable[..., Finished]


@pytest.fixture
def export_to(capsys: pytest.CaptureFixture[str], place: Path) -> Export:
    del place
    return lambda *arguments: invoke("export", capsys, *_FAST, *arguments)


def _contents(folder: Path) -> Mapping[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    ("model", "output"),
    [
        ("demo", "tapeline-demo"),
        ("files/SmolLM2-135M.Q4_K_M.gguf", "SmolLM2-135M.Q4_K_M"),
        ("files/big-00001-of-00003.gguf", "big"),
        ("files/My model (1).gguf", "My-model-1"),
        ("files/großes Modell", "gro-es-Modell"),
        ("files/...", "model"),
        ("files/tiny/", "tiny"),
        ("files/hub/models--org--tiny-lm/snapshots/0123abcd", "tiny-lm"),
        ("org/name", "name"),
        ("org/name@main", "name"),
        ("org/name-GGUF:Q4_K_M", "name-GGUF-Q4_K_M"),
        ("org/name-GGUF:name.Q8_0.gguf", "name.Q8_0"),
        ("tiny", "tiny-bundle"),
        ("./tiny", "tiny-bundle"),
        (".", "here"),
        ("tiny/..", "here"),
    ],
)
def test_a_bundle_has_the_name_of_its_model(
    model: str, output: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = tmp_path / "here"
    for name in ("files/tiny", "tiny", "files/hub/models--org--tiny-lm/snapshots/0123abcd", "files/großes Modell"):
        (here / name).mkdir(parents=True)
    for name in ("SmolLM2-135M.Q4_K_M.gguf", "big-00001-of-00003.gguf", "My model (1).gguf"):
        (here / "files" / name).touch()
    monkeypatch.chdir(here)
    assert default_output(model, Path()) == output
    monkeypatch.chdir(tmp_path)
    assert default_output(model, here) == output


def test_the_same_export_again_replaces_its_own_bundle(export_to: Export, place: Path) -> None:
    for _ in range(2):
        done = export_to("model")
        assert (done.code, done.out) == (0, f"{place / 'model-bundle'}\n")
    assert Bundle(place / "model-bundle").config.model["name"] == "model"
    settings = json.loads((place / "model-bundle" / "report.json").read_text())["settings"]
    assert (settings["dtype"], settings["sequence"], settings["target"]) == ("f32", 4, [])
    assert str(place) not in (place / "model-bundle" / "report.json").read_text()


@pytest.mark.parametrize(
    ("changes", "difference"),
    [
        (("--dtype=bf16",), "exported with --dtype=f32, and this export is with --dtype=bf16"),
        (
            ("--sequence=3", "--slots=2"),
            "exported with --sequence=4, no --slots, and this export is with --sequence=3, --slots=2",
        ),
    ],
)
def test_other_settings_are_another_bundle(
    changes: tuple[str, ...], difference: str, export_to: Export, place: Path
) -> None:
    assert export_to("model").code == 0
    before = _contents(place)
    done = export_to("model", *changes)
    refused(done, f"--output={place / 'model-bundle'}: it holds a bundle of model {difference}; choose another")
    assert "or replace that bundle with --overwrite" in done.err
    assert _contents(place) == before
    assert export_to("model", "--verify=parse").code == 0  # which changes no file of the bundle
    assert export_to("model", *changes, "--overwrite").code == 0
    assert export_to("model", *changes).code == 0


def test_a_model_of_the_same_name_is_another_model(export_to: Export, place: Path) -> None:
    assert export_to("model").code == 0
    (place / "other").mkdir()
    shutil.move(place / "model", place / "other" / "model")
    (place / "model-bundle").rename(place / "model")
    before = _contents(place)
    refused(export_to("other/model"), "it holds a bundle of another model, model (LlamaForCausalLM)")
    assert _contents(place) == before


def test_a_named_directory_takes_other_settings_of_its_model_alone(export_to: Export, place: Path) -> None:
    write_checkpoint(_made(place / "far" / "model"), CASES["qwen3"])
    assert export_to("model", "--output=bundle", "--dtype=bf16").code == 0
    assert Bundle(place / "bundle").config.model["dtype"] == "bf16"
    before = _contents(place)
    for words in (("demo",), ("far/model",), ("demo", "--resume"), ("demo", "--dry_run")):
        done = export_to(*words, "--output=bundle")
        refused(done, f"--output={place / 'bundle'}: it holds a bundle of another model, model (LlamaForCausalLM), and")
        assert f"this export is of {words[0].rpartition('/')[2]} (" in done.err
    write_checkpoint(_made(place / "wide" / "model"), CASES["llama_mha"])
    done = export_to("wide/model", "--output=bundle")
    refused(done, "of another model, model with vocabulary=")
    shutil.rmtree(place / "wide")
    assert _contents(place) == before
    assert export_to("demo", "--output=bundle", "--overwrite").code == 0
    assert Bundle(place / "bundle").config.model["name"] == "demo"


def test_a_directory_that_is_no_bundle_is_never_replaced(export_to: Export, place: Path) -> None:
    (_made(place / "thesis") / "text.tex").write_text("precious")
    for words in ((), ("--overwrite",)):
        refused(export_to("demo", "--output=thesis", *words), "--overwrite replaces bundles only")
    (_made(place / "tapeline-demo") / "text.tex").write_text("precious")
    refused(export_to(), "would replace: choose another directory")
    assert (place / "thesis" / "text.tex").read_text() == "precious"


def test_a_bundle_without_notes_of_its_settings(export_to: Export, place: Path) -> None:
    assert export_to().code == 0
    report = place / "tapeline-demo" / "report.json"
    fields: dict[str, Any] = json.loads(report.read_text())
    del fields["settings"]
    report.write_text(json.dumps(fields))
    refused(export_to(), "it holds a bundle of demo by an earlier version, which did not note its settings")
    assert export_to("--overwrite").code == 0


def test_a_dry_run_names_no_bundle_on_stdout(export_to: Export, place: Path) -> None:
    done = export_to("model", "--dry_run")
    assert done.code == 0
    assert str(place) not in done.out
    assert f"nothing was written; without it, the bundle is {place / 'model-bundle'}" in done.err
    assert not (place / "model-bundle").exists()


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True)
    return folder
