"""Encoders, exported and run on a device from the command line, say what transformers says."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tapeline
from lang_core import InputError
from run_iree import available, target_of_device
from tapeline.analysis.inspecting import facts
from tapeline.backends import model_of
from tapeline.bundle import Bundle
from tests.goldens.encoders.cases import ENCODER_CASES, EncoderCase
from tests.goldens.encoders.files import read_encoder_golden, write_encoder_checkpoint
from tests.goldens.samples import LONG
from tests.product._bundles import Finished, export, invoke

_DEVICE = os.environ.get("TAPELINE_DEVICE", "local-task")
_TOLERANCE = 2e-4
_MARKS = () if available(_DEVICE)[0] else pytest.mark.skip(reason=available(_DEVICE)[1])
_HERE = [pytest.param(_DEVICE, marks=_MARKS)]
# TAPELINE_LONG=1 in the environment asks for every encoder with one entry point.
_ALL = [name for name, case in ENCODER_CASES.items() if not case.steps and "text_config" not in case.config]
# embed_test, sentences_test and pictures_test run a BERT, a ModernBERT and a SigLIP.
_FEW = ("mpnet_classifier", "vit")
_CASES = [ENCODER_CASES[name] for name in (_ALL if LONG else _FEW)]
Run = Callable[..., Finished]


def _exported(case: EncoderCase, directory: Path, device: str, **options: object) -> Path:
    model = directory / "model"
    model.mkdir()
    write_encoder_checkpoint(model, case)
    shape = next(iter(read_encoder_golden(case.name).inputs.values())).shape
    sizes = {"batch": shape[0], **({"sequence": shape[1]} if len(shape) == 2 else {})}
    return export(model, directory / "bundle", **{"target": (target_of_device(device),), **sizes, **options})


@pytest.mark.parametrize("device", _HERE)
@pytest.mark.parametrize("case", _CASES, ids=lambda case: case.name)
def test_a_bundle_gives_what_transformers_does(
    case: EncoderCase, device: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bundle, golden = _exported(case, tmp_path, device, verify="auto"), read_encoder_golden(case.name)
    flags = [f"--bundle={bundle}", f"--device={device}", f"--output_dir={tmp_path / 'out'}"]
    for name, array in golden.inputs.items():
        np.save(tmp_path / f"{name}.npy", array)
        flags.append(f"--input={name}={tmp_path / name}.npy")
    done = invoke("run", capsys, *flags)
    assert done.code == 0, done.err
    for name, expected in golden.outputs.items():
        actual = np.load(tmp_path / "out" / f"{name}.npy")
        assert np.abs(actual - expected).max() / np.abs(expected).max() < _TOLERANCE, name


@pytest.mark.skipif(not LONG, reason="pictures_test embeds pictures on a device; pairs run with TAPELINE_LONG=1")
@pytest.mark.parametrize("name", [name for name, case in ENCODER_CASES.items() if "text_config" in case.config])
def test_pairs_of_pictures_and_texts(name: str, tmp_path: Path) -> None:
    golden = read_encoder_golden(name)
    sizes = {
        "sequence": golden.inputs["token_ids"].shape[1],
        "entry_points": ("encode_image", "encode_text", "forward"),
    }
    bundle = _exported(ENCODER_CASES[name], tmp_path, _DEVICE, verify="auto", **sizes)
    with tapeline.load(bundle, device=_DEVICE) as model:
        results = model.run("forward", golden.inputs)
        alone = {**model.run("encode_image", {"pixel_values": golden.inputs["pixel_values"]})}
        alone |= model.run("encode_text", {"token_ids": golden.inputs["token_ids"]})
    assert results.keys() > alone.keys()
    for key, expected in golden.outputs.items():
        for actual in (results, alone)[: 1 + (key in alone)]:
            assert np.abs(actual[key] - expected).max() / np.abs(expected).max() < _TOLERANCE, key


def test_the_description_says_what_the_model_is(tmp_path: Path) -> None:
    case = ENCODER_CASES["bert_sentence"]
    bundle = _exported(case, tmp_path, "local-task", target=(), num_layers=1)
    described = json.loads((bundle / "kernel_config.json").read_text())
    assert [point["name"] for point in described["entry_points"]] == ["forward"]
    assert described["model"]["pooling"] == {"mode": "mean", "normalize": True}
    assert (described["model"]["vocabulary"], described["model"]["layers"]) == (67, 1)
    assert "1_Pooling/config.json" in described["sha256"]
    states = {file["name"]: file["state"] for file in facts(Bundle(bundle), hashes=True)["files"]}
    assert states["1_Pooling/config.json"] == "ok"
    assert set(states.values()) == {"ok"}
    model, points = model_of(Bundle(bundle))
    assert (model.config.layers, [point.name for point in points]) == (1, ["forward"])
    assert _exported_again(case, bundle)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("bert", {"entry_points": ("prefill",)}, "entry_points=prefill: unknown 'prefill': known are forward"),
        ("bert", {"sequence": 20}, r"sequence: expected at most 19, the positions that have embeddings"),
        (
            "bert",
            {"positions": "per_row"},
            "slots: expected none, for BertModel has no caches whose rows requests could share",
        ),
        ("vit", {"sequence": 64}, "sequence: pictures of 8 x 13 pixels have 17 tokens; found 64: leave it out"),
        ("whisper", {"max_sequence": 22}, "max_sequence: expected at most 21, the decoder's positions"),
    ],
)
def test_bad_input(name: str, options: dict[str, Any], message: str, tmp_path: Path) -> None:
    write_encoder_checkpoint(tmp_path, ENCODER_CASES[name])
    with pytest.raises(InputError, match=message):
        export(tmp_path, tmp_path / "bundle", target=(), **options)


def _exported_again(case: EncoderCase, bundle: Path) -> bool:
    """Over the bundle, whose subfolder is its own, from what it keeps itself."""
    before = (bundle / "module.mlir").read_text()
    export(bundle.parent / "model", bundle, target=(), num_layers=1, batch=3, sequence=13, resume=True)
    return (bundle / "module.mlir").read_text() == before
