"""Exports of checkpoints that store parameters under other names, fused or transposed."""

import json
from pathlib import Path

import numpy as np
import pytest

from run_iree.archive import ArchiveWeights
from tapeline.bundle import PhaseMeter
from tapeline.exporting import ExportOptions, run_export
from tests.goldens.cases import CASES
from tests.goldens.weights import weight_shapes, write_checkpoint
from tests.product._bundles import stablehlo_here
from transformer_core.checkpoints import SafetensorsCheckpoint
from transformer_core.models import DecoderLM, load_config, weights_of

NAMES = ["phi3_window_4x", "glm4", "gpt_neox", "gpt2", "gpt2_4x", "mixtral"]


def export(name: str, directory: Path, num_layers: int | None = None) -> Path:
    model = directory / "model"
    model.mkdir()
    write_checkpoint(model, CASES[name], shards=2)
    output = directory / "bundle"
    options = ExportOptions(
        model=str(model),
        output=output,
        sequence=3,
        max_sequence=9,
        target=(),
        verify="none",
        num_layers=num_layers,
    )
    with stablehlo_here():
        run_export(options, model, PhaseMeter())
    return output


@pytest.mark.parametrize("name", NAMES)
def test_the_archive_holds_the_models_parameters(name: str, tmp_path: Path) -> None:
    bundle = export(name, tmp_path)
    report = json.loads((bundle / "report.json").read_text())
    assert set(report["parameters"]["used"]) == set(weight_shapes(CASES[name].config))
    model = DecoderLM(load_config(tmp_path / "model"))
    with SafetensorsCheckpoint(tmp_path / "model") as checkpoint:
        weights = weights_of(model, checkpoint)
        archive = ArchiveWeights(bundle / "weights.irpa")
        for path, parameter in model.named_parameters():
            assert archive.spec(path) == parameter.spec
            np.testing.assert_array_equal(archive.read(path), weights.read(path))


@pytest.mark.parametrize("name", NAMES)
def test_the_layers_beyond_the_first_are_ignored_by_their_stored_names(name: str, tmp_path: Path) -> None:
    report = json.loads((export(name, tmp_path, num_layers=1) / "report.json").read_text())
    stored = set(weight_shapes(CASES[name].config))
    ignored = set(report["parameters"]["ignored"])
    assert ignored
    assert ignored | set(report["parameters"]["used"]) == stored
