"""Exports of checkpoints whose experts are stored one by one, and all in one tensor."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy

from lang_core import CheckpointError
from tapeline.bundle import PhaseMeter
from tapeline.exporting import ExportOptions, dry_run, run_export
from tests.goldens.cases import CASES
from tests.goldens.weights import stored_weights, weight_shapes, write_checkpoint
from tests.product._bundles import stablehlo_here

CASE = CASES["qwen3_moe"]


@pytest.fixture
def model(tmp_path: Path) -> Path:
    directory = tmp_path / "model"
    directory.mkdir()
    write_checkpoint(directory, CASE, shards=2, layout="round_robin")
    return directory


def export(model: Path, output: Path, **changes: Any) -> dict[str, Any]:
    fields = {"sequence": 3, "max_sequence": 9, "target": (), "verify": "none"}
    with stablehlo_here():
        run_export(ExportOptions(**{"model": str(model), "output": output, **fields, **changes}), model, PhaseMeter())
    return json.loads((output / "report.json").read_text())


def fused(weights: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The same as transformers 5 holds them: E experts in two tensors."""
    made = {key: value for key, value in weights.items() if ".experts." not in key}
    for layer in range(CASE.config["num_hidden_layers"]):
        prefix, count = f"model.layers.{layer}.mlp.experts.", CASE.config["num_local_experts"]
        gate, up, down = (
            np.stack([weights[f"{prefix}{expert}.{name}_proj.weight"] for expert in range(count)])
            for name in ("gate", "up", "down")
        )
        made |= {f"{prefix}gate_up_proj": np.concatenate([gate, up], 1), f"{prefix}down_proj": down}
    return made


def test_a_bundle_is_verified_and_its_report_names_the_stored_keys(model: Path, tmp_path: Path) -> None:
    report = export(
        model, tmp_path / "bundle", target=("llvm-cpu",), verify="auto", num_layers=1, entry_points=("forward",)
    )
    stored = set(weight_shapes(CASE.config))
    assert set(report["parameters"]["used"]) == {
        key for key in stored if not key.startswith(("model.layers.1.", "model.layers.2."))
    }
    assert {row["entry_point"] for row in report["verification"]} == {"forward"}
    assert all("skipped" not in row and row["max_rel"] < 1e-4 for row in report["verification"])
    config = json.loads((tmp_path / "bundle" / "kernel_config.json").read_text())
    assert config["parameters"]["model.layers.0.mlp.experts.down_proj"]["shape"] == [9, 48, 14]


def test_a_fused_checkpoint_becomes_the_same_bundle(model: Path, tmp_path: Path) -> None:
    separate = export(model, tmp_path / "separate", dtype="bf16")
    for path in model.glob("*.safetensors*"):
        path.unlink()
    safetensors.numpy.save_file(fused(stored_weights(CASE)), model / "model.safetensors")
    together = export(model, tmp_path / "together", dtype="bf16")
    for name in ("weights.irpa", "module.mlir"):
        assert together["hashes"][name] == separate["hashes"][name], name
    assert "model.layers.0.mlp.experts.gate_up_proj" in together["parameters"]["used"]


@pytest.mark.parametrize("weights", ["external", "inline"])
def test_dry_run_predicts_the_files(model: Path, tmp_path: Path, weights: str) -> None:
    options = ExportOptions(
        model=str(model), output=tmp_path / "bundle", sequence=3, max_sequence=9, target=(), weights=weights
    )
    predicted = dry_run(options, model, PhaseMeter())
    report = export(model, options.output, weights=weights)
    assert predicted["nodes"] == report["nodes"]
    for name in set(predicted["files"]) - set(predicted["estimated"]):
        assert (options.output / name).stat().st_size == predicted["files"][name], name


def test_what_is_wrong_with_an_expert_is_said_of_its_own_tensor(model: Path, tmp_path: Path) -> None:
    for path in model.glob("*.safetensors*"):
        path.unlink()
    key = "model.layers.1.mlp.experts.4.up_proj.weight"
    weights = {**stored_weights(CASE), key: np.zeros((15, 48), np.float32)}
    safetensors.numpy.save_file(weights, model / "model.safetensors")
    with pytest.raises(CheckpointError, match=rf"'{key}' in .* has shape \[15, 48\], .* needs \[14, 48\]"):
        export(model, tmp_path / "bundle")
    assert not (tmp_path / "bundle").exists()
