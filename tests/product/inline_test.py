"""--weights=inline: exact, and as strict as an archive."""

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from lang_core import InputError
from tapeline.bundle import PhaseMeter
from tapeline.cli import TerminalProgress
from tapeline.exporting import ExportOptions, run_export
from tests.goldens.cases import CASES
from tests.goldens.weights import write_checkpoint


@pytest.fixture
def model(tmp_path: Path) -> Path:
    directory = tmp_path / "model"
    directory.mkdir()
    write_checkpoint(directory, CASES["llama_gqa"])
    return directory


def export(model: Path, dtype: str) -> None:
    options = ExportOptions(
        model=str(model),
        output=model.parent / "bundle",
        entry_points=("forward",),
        sequence=4,
        dtype=dtype,
        weights="inline",
        target=(),
        verify="parse",
    )
    with TerminalProgress() as progress:
        run_export(options, model, PhaseMeter(), progress)


def change(model: Path, key: str, value: float) -> None:
    weights = {name: np.array(array) for name, array in load_file(model / "model.safetensors").items()}
    weights[key][0, 0] = value
    save_file(weights, model / "model.safetensors")


def test_every_bit_of_a_nan_is_kept_and_reported(model: Path, capfd: pytest.CaptureFixture[str]) -> None:
    change(model, "model.embed_tokens.weight", np.nan)
    export(model, "f32")
    assert "warning: parameter model.embed_tokens.weight" in capfd.readouterr().err
    assert 'dense<"0x0000c07f' in (model.parent / "bundle" / "module.mlir").read_text()


def test_a_value_that_f16_does_not_hold_is_refused(model: Path) -> None:
    change(model, "model.embed_tokens.weight", 1e6)
    refusal = r"element \[0, 0\] of 'model\.embed_tokens\.weight' in .* is 1e\+06, .* infinite as f16: store it as bf16"
    with pytest.raises(InputError, match=refusal):
        export(model, "f16")
    assert not (model.parent / "bundle").exists()
