"""Exports of quantised safetensors: what stays packed, what is unpacked and at which cost, and errors."""

import dataclasses
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy

from lang_core import encoding_named
from run_iree import target_of_device
from run_iree.archive import ArchiveWeights
from tapeline.bundle import ARCHIVE
from tests.goldens.cases import CASES, GoldenCase
from tests.goldens.quantized_models import write_quantized, write_tensors
from tests.product._bundles import export, invoke, refused
from transformer_core.checkpoints import SafetensorsFile

_DEVICE = os.environ.get("TAPELINE_DEVICE", "local-task")
_SIZES = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
}
_GATE = "model.layers.1.mlp.gate_proj.weight"


def _case() -> GoldenCase:
    case = CASES["llama_gqa"]
    return dataclasses.replace(case, config={**case.config, **_SIZES})


def _parameters(bundle: Path) -> dict[str, Any]:
    return json.loads((bundle / "report.json").read_text())["parameters"]


@pytest.mark.parametrize(("form", "encoding"), [("awq", "q5_0"), ("int8", "q8_0"), ("mxfp4", "mxfp4")])
def test_matrices_stay_packed_and_are_verified(
    form: str, encoding: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    stored = write_quantized(tmp_path / "model", _case(), form)
    target = target_of_device(_DEVICE)
    bundle = export(
        tmp_path / "model", tmp_path / "bundle", target=(target,), verify="iree", sequence=8, entry_points=("forward",)
    )
    said = capfd.readouterr().err
    facts = _parameters(bundle)
    assert (facts["packed"]["encodings"], facts["packed"]["kept"]) == ({encoding: 14}, 0)
    (kind,) = facts["packed"]["exact"]
    assert f"14 {kind} in other blocks with exactly the same weights\n" in said
    assert facts["dequantised"] == {}
    config = json.loads((bundle / "kernel_config.json").read_text())["model"]
    assert config["quantize"] == "stored"
    with ArchiveWeights(bundle / ARCHIVE) as weights:
        np.testing.assert_array_equal(encoding_named(encoding).unpacked(weights.read(_GATE)), stored[_GATE])


@pytest.mark.parametrize("form", ["fp8", "gptq4_reordered", "nvfp4"])
def test_what_no_encoding_holds_is_unpacked_and_its_cost_is_named(
    form: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    stored = write_quantized(tmp_path / "model", _case(), form)
    bundle = export(tmp_path / "model", tmp_path / "bundle", target=(), sequence=8)
    said = capfd.readouterr().err
    facts = _parameters(bundle)
    (kind,) = facts["dequantised"]
    with SafetensorsFile(tmp_path / "model" / "model.safetensors") as file:
        quantised = sum(file.read_stored(key).nbytes for key in file.keys() if "proj" in key)  # noqa: SIM118
    elements = sum(weight.size for key, weight in stored.items() if "proj" in key)
    assert facts["dequantised_bytes"] == {"stored": quantised, "unpacked": 4 * elements}
    assert f"packed weights (14 {kind} tensors) are dequantised: the bundle holds them unpacked, in " in said
    with ArchiveWeights(bundle / ARCHIVE) as weights:
        for key, weight in stored.items():
            assert weights.read(key).tobytes() == weight.tobytes()


def test_activations_are_said_to_be_exact(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    write_quantized(tmp_path / "model", _case(), "fp8")
    bundle = export(tmp_path / "model", tmp_path / "bundle", target=(), sequence=8)
    said = "activations and caches are not quantised, whatever quantization_config says"
    assert f"{said}\n" in capfd.readouterr().err
    source = json.loads((bundle / "kernel_config.json").read_text())["model"]["source"]
    assert source == {"format": "safetensors", "quantization": "fp8", "notes": [said]}


def test_inspect_says_what_an_export_unpacks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for form, expected in {"awq": [], "fp8": ["fp8", "14", "tensors"]}.items():
        write_quantized(tmp_path / form, _case(), form)
        done = invoke("inspect", capsys, f"--model={tmp_path / form}")
        assert done.code == 0
        assert "14 parameters" in done.out
        unpacked = done.out.partition("packed tensors that an export unpacks:\n")[2].split()
        assert unpacked[:3] == expected


def test_16_bits_are_the_librarys_16_bits(tmp_path: Path) -> None:
    """Weights in f32 rounded once: what the library computes in bf16."""
    stored = write_quantized(tmp_path / "model", _case(), "int4")
    bundle = export(tmp_path / "model", tmp_path / "bundle", target=(), sequence=8, dtype="bf16", quantize="none")
    with SafetensorsFile(tmp_path / "model" / "model.safetensors") as file, ArchiveWeights(bundle / ARCHIVE) as weights:
        scales = file.read("model.layers.1.mlp.gate_proj.weight_scale")
        codes = np.rint(stored[_GATE] / np.repeat(scales.astype(np.float32), 32, axis=1))
        expected = codes.astype(scales.dtype) * np.repeat(scales, 32, axis=1)
        assert expected.dtype == scales.dtype
        np.testing.assert_array_equal(weights.read(_GATE), expected)


def test_errors_end_with_code_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, output = tmp_path / "model", tmp_path / "bundle"
    write_quantized(model, _case(), "awq")
    arguments = [f"--model={model}", f"--output={output}", "--target=none", "--sequence=8"]
    path, config = model / "model.safetensors", model / "config.json"
    whole, values = path.read_bytes(), json.loads(config.read_text())
    tensors = safetensors.numpy.load(whole)

    def error(message: str) -> None:
        refused(invoke("export", capsys, *arguments), message)
        assert not output.exists()

    key = "model.layers.0.mlp.up_proj.scales"
    scales = tensors[key].copy()
    scales[1, 3] = np.nan
    write_tensors(path, {**tensors, key: scales})
    error(f"tensor '{key}' gives the scale nan, expected finite ones")
    write_tensors(path, {**tensors, key: tensors[key][:1]})
    error(f"tensor '{key}' has shape [1, 96], expected [2, 96]")
    write_tensors(path, {name: tensor for name, tensor in tensors.items() if name != key})
    error(f"its other part '{key}' is missing")
    path.write_bytes(whole[:-100])
    error("truncated")
    path.write_bytes(whole)
    for method in ("bitsandbytes", "hqq"):
        values["quantization_config"]["quant_method"] = method
        config.write_text(json.dumps(values))
        error("field 'quant_method': expected one of fp8, fbgemm_fp8, mxfp4, compressed-tensors, gptq, awq")
    values["quantization_config"] = {"quant_method": "fp8"}
    config.write_text(json.dumps(values))
    error("'model.layers.0.mlp.down_proj.weight' is missing")
