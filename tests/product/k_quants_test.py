"""A GGUF file of Q4_K and Q6_K stays packed in its bundle, each matrix as it is, and a device says the same tokens."""

import dataclasses
import json
import os
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
from gguf import GGMLQuantizationType as Kind

from generation import StopRule
from generation.engine._sequence_testing import steps_of
from run_iree._device_testing import sharing
from run_iree.archive import ArchiveWeights
from tapeline.analysis.inspecting import facts, parameters, parameters_text
from tapeline.backends import model_of
from tapeline.bundle import ARCHIVE, Bundle, PhaseMeter
from tapeline.compare import PACKED, TOLERANCE
from tapeline.divergence import DeviceSide, compare_runs, eager_side
from tapeline.exporting import ExportOptions, dry_run
from tests.goldens.cases import CASES, GoldenCase
from tests.goldens.gguf_files import write_gguf
from tests.product._bundles import ON_FAST_DEVICES, export, export_stored, greedy
from tests.product._eager_model import EagerModel
from transformer_core.checkpoints.gguf import GgufFile

_DEVICE: Final = os.environ.get("TAPELINE_DEVICE", "local-task")
pytestmark = ON_FAST_DEVICES
_SIZES: Final = {
    "hidden_size": 256, "intermediate_size": 512, "num_attention_heads": 4, "head_dim": 64, "num_key_value_heads": 2,
}  # fmt: skip
_STORED: Final[dict[str, Any]] = {"sequence": 8, "max_sequence": 40, "quantize": "stored"}
_STEPS: Final = 16


def _case() -> GoldenCase:
    llama = CASES["llama_gqa"]
    return dataclasses.replace(llama, config={**llama.config, **_SIZES})


def _kind(key: str, _: tuple[int, ...]) -> Kind:
    """Types of llama.cpp's Q4_K_M: six bits for the head's table, for values, and in every other layer for ffn_down.

    One matrix has a type that nothing here multiplies with.
    """
    if key == "blk.0.ffn_up.weight":
        return Kind.IQ3_S
    six = key in ("token_embd.weight", "output.weight") or "attn_v" in key or key == "blk.1.ffn_down.weight"
    return Kind.Q6_K if six else Kind.Q4_K


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("k_quants") / "model.gguf"
    write_gguf(path, _case(), pack=_kind)
    return path


@pytest.fixture(scope="module")
def bundle(file: Path) -> Path:
    return export_stored(file, _DEVICE, **_STORED)


def test_super_blocks_are_the_bundles(bundle: Path, file: Path) -> None:
    config = json.loads((bundle / "kernel_config.json").read_text())
    assert config["model"]["quantize"] == "stored"
    encodings = {path: parameter.get("encoding") for path, parameter in config["parameters"].items()}
    assert encodings["model.layers.0.mlp.down_proj.weight"] == "q4_k"
    assert encodings["model.layers.1.mlp.down_proj.weight"] == "q6_k"
    assert encodings["model.layers.0.mlp.up_proj.weight"] is None
    assert encodings["model.layers.0.input_layernorm.weight"] is None
    down = config["parameters"]["model.layers.1.mlp.down_proj.weight"]
    assert (down["dtype"], down["shape"]) == ("i8", [256, 512 // 256 * 210])
    with ArchiveWeights(bundle / ARCHIVE) as weights, GgufFile(file) as stored:
        for name, key in {"gate_proj": "ffn_gate", "down_proj": "ffn_down"}.items():
            packed = stored.read_packed(f"blk.1.{key}.weight")
            assert weights.read(f"model.layers.1.mlp.{name}.weight").tobytes() == packed.tobytes()
        turned = weights.read("model.layers.0.self_attn.q_proj.weight").reshape(4, 2, 32, -1)
        assert turned.swapaxes(1, 2).tobytes() == stored.read_packed("blk.0.attn_q.weight").tobytes()
        np.testing.assert_array_equal(
            weights.read("model.layers.0.mlp.up_proj.weight"), stored.read("blk.0.ffn_up.weight")
        )


def test_what_stays_packed_is_said(file: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    made = export(file, tmp_path / "bundle", target=(), **_STORED)
    said = capfd.readouterr().err
    report = json.loads((made / "report.json").read_text())["parameters"]
    packed = report["packed"]
    assert (packed["matrices"], packed["kept"], packed["encodings"]) == (15, 15, {"q4_k": 10, "q6_k": 5})
    assert (packed["requantised"], report["dequantised"]) == ({}, {"iq3_s": 1})
    assert packed["unpacked_parameters"] == ["model.layers.*.mlp.up_proj.weight"]
    assert "15 matrices are packed as 10 q4_k, 5 q6_k, 15 of them byte for byte as stored\n" in said
    assert (
        "packed weights (1 iq3_s tensors) are dequantised: the bundle holds them unpacked, in 0.50 MiB, where " in said
    )
    assert report["dequantised_bytes"] == {"stored": 512 * 110, "unpacked": 512 * 256 * 4}
    prediction = dry_run(ExportOptions(str(file), tmp_path / "no", target=(), **_STORED), file, PhaseMeter())
    assert prediction["files"][ARCHIVE] == (made / ARCHIVE).stat().st_size


def test_another_encoding_says_how_to_keep_them(file: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    export(file, tmp_path / "bundle", target=(), sequence=8, quantize="q8_0")
    assert "quantised a second time; quantize=stored keeps those of q4_k, q6_k packed\n" in capfd.readouterr().err


def test_layers_of_different_encodings_are_lowered_alike(file: Path, tmp_path: Path) -> None:
    """Buffered and streamed; each encoding of a layer is a function of its own."""
    streamed, buffered = (
        (export(file, tmp_path / how, target=(), lowering=how, **_STORED) / "module.mlir").read_bytes()
        for how in ("streaming", "buffered")
    )
    assert streamed == buffered
    for name in (b"packed_linear.q4_k.f32.1x256x512", b"packed_linear.q6_k.f32.1x256x512"):
        assert streamed.count(b"func.func private @" + name + b"(") == 1


def test_inspect_names_the_encodings(bundle: Path) -> None:
    described = facts(Bundle(bundle), hashes=False)
    assert set(described["parameters"]["dtypes"]) == {"q4_k", "q6_k", "f32"}
    assert "q6_k in i8[256,420]" in parameters_text(parameters(Bundle(bundle), "*.1.mlp.down_proj.weight"))


def test_compare_holds_the_bundle_to_the_eager_context(bundle: Path) -> None:
    opened = Bundle(bundle)
    vocabulary = _case().config["vocab_size"]
    with opened.session(_DEVICE) as session, eager_side(opened) as eager:
        comparison = compare_runs(
            DeviceSide(opened, session), eager, opened.config.entry_points, vocabulary, inside="never"
        )
    assert comparison.first is None
    assert comparison.tolerance == TOLERANCE[PACKED]


def test_tokens_are_the_eager_contexts(bundle: Path) -> None:
    prompt = [83, 19, 69, 41, 90, 92, 59, 58, 72, 59]  # no token after it is nearly as likely as another
    _, points = model_of(Bundle(bundle))
    prefill, decode = (next(point for point in points if point.name == name) for name in ("prefill", "decode"))
    with ArchiveWeights(bundle / ARCHIVE) as weights:
        model = EagerModel(prefill, decode, weights, _case().config["vocab_size"])
        steps = steps_of(model, prompt, StopRule(frozenset(), _STEPS))
    expected = np.stack([step.logits for step in steps])
    first, second = np.sort(expected)[:, :-3:-1].T
    for device in sharing(_DEVICE):
        tokens, logits = greedy(bundle, device, prompt, _STEPS)
        assert tokens == [step.token_id for step in steps], device
        difference = np.abs(logits - expected).max(-1)
        assert ((first - second) > 2 * difference).all(), (device, first - second, difference)
        assert difference.max() > 0, device
