"""An export does what --dry_run predicts, and --dry_run writes nothing."""

import json
from pathlib import Path
from typing import Any

import pytest

from lang_core import InputError
from tapeline.bundle import PhaseMeter
from tapeline.cli import size_text
from tapeline.exporting import ExportOptions, dry_run, prediction_text, run_export, write_prediction
from tests.goldens.cases import CASES
from tests.goldens.weights import write_checkpoint
from tests.product._bundles import stablehlo_here


@pytest.fixture
def model(tmp_path: Path) -> Path:
    directory = tmp_path / "model"
    directory.mkdir()
    write_checkpoint(directory, CASES["qwen3"], shards=2)
    return directory


def options(output: Path, model: Path, **changes: Any) -> ExportOptions:
    fields = {"model": str(model), "output": output, "sequence": 8, "max_sequence": 16, "target": (), "verify": "none"}
    return ExportOptions(**(fields | changes))


@pytest.mark.parametrize("weights", ["external", "inline", "none"])
def test_the_prediction_comes_true(tmp_path: Path, model: Path, weights: str) -> None:
    asked = options(tmp_path / "bundle", model, weights=weights, dtype="bf16")
    before = sorted(tmp_path.rglob("*"))
    predicted = dry_run(asked, model, PhaseMeter())
    assert sorted(tmp_path.rglob("*")) == before
    with stablehlo_here():
        run_export(asked, model, PhaseMeter())
    for name, size in predicted["files"].items():
        actual = (asked.output / name).stat().st_size
        # What libraries write is guessed: of a model as small as this one, to a factor.
        assert size / 3 <= actual <= size * 3 if name in predicted["estimated"] else actual == size, name
    report = json.loads((asked.output / "report.json").read_text())
    assert predicted["nodes"] == report["nodes"]
    assert predicted["parameters"]["bytes"] == report["parameters"]["bytes"]
    assert predicted["disk_bytes"] == sum(predicted["files"].values())
    told = {name: value for name, value in predicted.items() if name != "parameters"}
    for prediction in (told, report["predicted"]):  # what the process holds already differs, and is in all phases alike
        anonymous = prediction["peak_anonymous_bytes"]
        prediction["peak_anonymous_bytes"] = {phase: size - anonymous["lower"] for phase, size in anonymous.items()}
    assert told == report["predicted"]
    assert set(report["actual"]["files"]) == set(predicted["files"]) - {"report.json"}


def test_it_is_told_to_people_and_to_programs(tmp_path: Path, model: Path) -> None:
    predicted = dry_run(options(tmp_path / "bundle", model, target=("vmvx",)), model, PhaseMeter())
    text = prediction_text(predicted)
    assert f"nodes: {predicted['nodes']['recorded']} recorded" in text
    assert "weights.irpa: " in text
    assert "module.vmvx.vmfb: about " in text
    assert "peak memory, compile: " in text
    write_prediction(predicted, tmp_path / "report.json")
    assert json.loads((tmp_path / "report.json").read_text()) == {"predicted": predicted}


@pytest.mark.parametrize("changes", [{"slots": 256}, {"slots": 1024}, {"slots": 256, "page_tokens": 16, "pages": 2049}])
def test_verification_counts_the_caches_of_a_server_once(tmp_path: Path, model: Path, changes: dict[str, int]) -> None:
    """More slots mean more entry points, whose calls are not kept: their caches are there five times in all."""
    asked = options(
        tmp_path / "bundle", model, max_sequence=128, target=("llvm-cpu",), verify="iree", weights="external", **changes
    )
    predicted = dry_run(asked, model, PhaseMeter())
    anonymous, caches = predicted["peak_anonymous_bytes"], predicted["caches"]["bytes"]
    assert caches >= 20 << 20
    assert 5 * caches < anonymous["verify"] - anonymous["lower"] < 5 * caches + (40 << 20)


def test_it_says_what_rings_save(tmp_path: Path) -> None:
    """Two of Gemma 3's three layers have a window of 6: 11 places for calls of up to 6 tokens, in place of 50."""
    case, model = CASES["gemma3"], tmp_path / "gemma"
    model.mkdir()
    write_checkpoint(model, case)
    sizes: dict[str, Any] = {"sequence": 3, "verify_tokens": 6, "max_sequence": 50, "batch": 2}
    ring, whole = (
        dry_run(options(tmp_path / "bundle", model, window_caches=kind, **sizes), model, PhaseMeter())
        for kind in ("ring", "whole")
    )
    place = (
        2 * 2 * case.config["num_key_value_heads"] * case.config["head_dim"] * 4
    )  # of two sequences: keys and values
    assert ring["caches"] == {"bytes": place * (11 + 11 + 50), "bytes_if_whole": place * 150}
    assert whole["caches"] == {"bytes": place * 150, "bytes_if_whole": place * 150}
    assert "less than whole caches" in prediction_text(ring)
    assert f"caches: {size_text(place * 150)}\n" in prediction_text(whole)


def test_it_refuses_what_the_export_would(tmp_path: Path, model: Path) -> None:
    with pytest.raises(InputError, match=r"expected at most max_sequence \(16\); found 17"):
        dry_run(options(tmp_path / "bundle", model, sequence=17), model, PhaseMeter())
    (model / "model-00001-of-00002.safetensors").unlink()
    with pytest.raises(InputError, match="model-00001-of-00002"):
        dry_run(options(tmp_path / "bundle", model), model, PhaseMeter())


@pytest.mark.parametrize("weights", ["external", "none"])
@pytest.mark.parametrize("quantization", [{"quant_method": "bitsandbytes"}, {"load_in_8bit": True}])
def test_a_method_of_quantization_that_is_not_read_is_refused_without_weights_too(
    weights: str, quantization: dict[str, Any], tmp_path: Path, model: Path
) -> None:
    path = model / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "quantization_config": quantization}))
    asked = options(tmp_path / "bundle", model, weights=weights)
    for call in (dry_run, run_export):
        with pytest.raises(InputError, match=r"quantization_config: .*bitsandbytes|load_in_8bit.*not bitsandbytes"):
            call(asked, model, PhaseMeter())


@pytest.mark.parametrize("shards", [1, 2])
def test_files_with_weights_that_are_not_read_are_named(shards: int, tmp_path: Path) -> None:
    model, said = tmp_path / "some", []
    model.mkdir()
    write_checkpoint(model, CASES["llama_gqa"], shards=shards)
    first = sorted(model.glob("*.safetensors"))[0]
    for name in ("model-00003-of-00003.safetensors", "consolidated.safetensors"):
        (model / name).write_bytes(first.read_bytes())
    asked = options(tmp_path / "bundle", model)
    with stablehlo_here():
        run_export(asked, model, PhaseMeter(), lambda event: said.append(event.text))
    expected = "warning: not read, because the checkpoint's index or its model.safetensors counts alone: model-00003-of"
    assert sum(text.startswith(expected) for text in said) == 1
    report = json.loads((asked.output / "report.json").read_text())
    (note,) = report["model"]["source"]["notes"]
    assert note.startswith(expected)
    assert "consolidated" not in note
