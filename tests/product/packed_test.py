"""Bundles of packed weights: the archive's bytes, what is said of them, and what a device makes of them."""

import dataclasses
import json
import os
from pathlib import Path

import numpy as np
import pytest
from gguf import GGMLQuantizationType, quants

from lang_core import ConfigError, InputError, as_dtype
from run_iree import target_of_device
from run_iree.archive import ArchiveWeights
from tapeline.bundle import ARCHIVE
from tests.goldens.cases import CASES, GoldenCase
from tests.goldens.gguf_files import write_gguf
from tests.goldens.weights import stored_weights, write_checkpoint
from tests.product._bundles import export
from transformer_core.checkpoints import LlamaSizes, write_random_llama
from transformer_core.checkpoints.gguf import GgufFile

_DEVICE = os.environ.get("TAPELINE_DEVICE", "local-task")
_SIZES = {"hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 4, "head_dim": 16}


def _case() -> GoldenCase:
    llama = CASES["llama_gqa"]
    return dataclasses.replace(llama, config={**llama.config, **_SIZES, "num_key_value_heads": 2})


def test_a_gguf_files_blocks_are_the_bundles(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    kinds, path = GGMLQuantizationType, tmp_path / "model.gguf"
    stored = write_gguf(path, _case(), pack=lambda key, _: kinds.Q8_0 if "ffn" in key else kinds.Q4_0)
    target = target_of_device(_DEVICE)
    how = {"quantize": "q8_0", "verify": "iree", "sequence": 8, "entry_points": ("forward",)}
    bundle = export(path, tmp_path / "bundle", target=(target,), **how)
    said = capfd.readouterr().err
    report = json.loads((bundle / "report.json").read_text())["parameters"]
    facts = report["packed"]
    assert report["dequantised"] == {}
    assert facts["kept"] == 6
    assert facts["requantised"] == {"q4_0": facts["matrices"] - 6}
    assert f"{facts['matrices']} matrices are packed as q8_0, 6 of them byte for byte as stored\n" in said
    assert f"{facts['matrices'] - 6} q4_0 matrices are packed otherwise" in said
    config = json.loads((bundle / "kernel_config.json").read_text())
    assert config["model"]["quantize"] == "q8_0"
    down = config["parameters"]["model.layers.1.mlp.down_proj.weight"]
    assert down == {"dtype": "i8", "shape": [64, 96 // 32 * 34], "encoding": "q8_0"}
    assert "encoding" not in config["parameters"]["model.norm.weight"]
    with ArchiveWeights(bundle / ARCHIVE) as weights, GgufFile(path) as file:
        actual = weights.read("model.layers.1.mlp.down_proj.weight")
        assert actual.tobytes() == file.read_packed("blk.1.ffn_down.weight").tobytes()
        again = quants.quantize(stored["token_embd.weight"], kinds.Q8_0)
        assert weights.read("model.embed_tokens.weight").tobytes() == again.tobytes()


def test_a_checkpoint_in_shards_is_packed_as_the_reference_packs(tmp_path: Path) -> None:
    case = _case()
    (tmp_path / "model").mkdir()
    write_checkpoint(tmp_path / "model", case, shards=2)
    bundle = export(tmp_path / "model", tmp_path / "bundle", target=(), sequence=8, quantize="q4_0")
    key = "model.layers.0.mlp.gate_proj.weight"
    wanted = quants.quantize(stored_weights(case)[key].astype(np.float32), GGMLQuantizationType.Q4_0)
    with ArchiveWeights(bundle / ARCHIVE) as weights:
        assert weights.read(key).tobytes() == wanted.tobytes()


@pytest.mark.parametrize("quantize", ["q8_0", "q4_0"])
def test_memory_is_what_was_predicted_and_does_not_grow(quantize: str, tmp_path: Path) -> None:
    """Models whose largest matrix is 8 and 32 MiB in f32, the other one twice the first in layers, too."""
    peaks = []
    for number, (layers, vocabulary) in enumerate([(1, 4096), (2, 16384)]):
        model = tmp_path / f"model{number}"
        write_random_llama(model, LlamaSizes(layers, 512, 1024, 8, 4, vocabulary), as_dtype("bf16"))
        bundle = export(model, tmp_path / f"bundle{number}", target=(), sequence=8, quantize=quantize)
        report = json.loads((bundle / "report.json").read_text())
        actual, bound = (report[kind]["peak_anonymous_bytes"]["parameters"] for kind in ("actual", "predicted"))
        assert actual <= bound
        peaks.append(bound)
    assert abs(peaks[1] - peaks[0]) < 2 << 20  # what was held before the prediction is measured
    assert max(peaks) < 32 << 20


def test_memory_of_verification_is_what_was_predicted(tmp_path: Path) -> None:
    """In 16 bits every weight is unpacked once, one at a time: here at most 32 MiB."""
    write_random_llama(tmp_path / "model", LlamaSizes(2, 512, 1024, 8, 4, 16384), as_dtype("bf16"))
    sizes = {"sequence": 8, "dtype": "bf16", "quantize": "q4_0"}
    bundle = export(
        tmp_path / "model", tmp_path / "bundle", target=(target_of_device("local-task"),), verify="iree", **sizes
    )
    report = json.loads((bundle / "report.json").read_text())
    actual, bound = (report[kind]["peak_anonymous_bytes"]["verify"] for kind in ("actual", "predicted"))
    assert actual <= bound < 160 << 20


@pytest.mark.parametrize("weights", ["external", "inline"])
def test_a_weight_that_no_block_holds(weights: str, tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    write_gguf(path, _case())
    content = bytearray(path.read_bytes())
    with GgufFile(path) as file:
        place = content.find(file.read("blk.0.ffn_down.weight").tobytes())
    content[place : place + 4] = np.float32(np.nan).tobytes()
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"parameter 'model\.layers\.0\.mlp\.down_proj\.weight': element \[0, 0\]"):
        export(path, tmp_path / "bundle", target=(), sequence=8, quantize="q8_0", weights=weights)
    assert not (tmp_path / "bundle").exists()


def test_a_model_without_whole_blocks(tmp_path: Path) -> None:
    sizes = {"hidden_size": 40, "intermediate_size": 56, "head_dim": 6}
    case = dataclasses.replace(_case(), config={**_case().config, **sizes})
    write_gguf(tmp_path / "model.gguf", case)
    with pytest.raises(ConfigError, match="no weight can be packed as q4_0: blocks of 32 go along"):
        export(tmp_path / "model.gguf", tmp_path / "bundle", target=(), sequence=8, quantize="q4_0")
