"""Bundles without weights take them from the checkpoint that they lie beside."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

import tapeline
from lang_core import InputError, Parts, part_of
from tapeline.backends import Place
from tapeline.demo import write_demo_checkpoint


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The demo model's directory, with bundles in it: with an archive, and without weights in f32 and bf16."""
    directory = tmp_path_factory.mktemp("model")
    write_demo_checkpoint(directory)
    for name, weights, dtype in (("whole", "external", "f32"), ("bare", "none", "f32"), ("half", "none", "bf16")):
        tapeline.export(directory, directory / name, weights=weights, dtype=dtype, target=[], sequence=4)
    return directory


def test_parameters_are_those_of_the_archive(model: Path) -> None:
    whole, bare, half = (tapeline.Bundle(model / name) for name in ("whole", "bare", "half"))
    archive, weights, halved = (bundle.weights() for bundle in (whole, bare, half))
    assert archive is not None
    assert weights is not None
    assert halved is not None
    assert isinstance(weights, Parts)
    assert list(weights.keys()) == list(archive.keys()) == list(whole.config.parameters)
    name = ""
    for name in whole.config.parameters:
        assert weights.has(name)
        assert weights.spec(name) == archive.spec(name)
        np.testing.assert_array_equal(weights.read(name), archive.read(name))
        np.testing.assert_array_equal(weights.read_rows(name, 1, 3), archive.read_rows(name, 1, 3))
        part = (slice(0, 2), slice(3, 7))[: archive.spec(name).ndim]
        np.testing.assert_array_equal(part_of(weights, name, part), archive.read(name)[part])
        np.testing.assert_array_equal(part_of(halved, name, part), part_of(archive, name, part).astype("bfloat16"))
    assert weights.origin(name) == str(model / "model.safetensors")


def test_a_bundle_without_weights_generates(model: Path, tmp_path: Path) -> None:
    prompt = "It was the best of times,"
    with tapeline.load(model / "whole", engine="jax") as loaded:
        wanted = loaded.generate(prompt, max_new_tokens=12).text
    with tapeline.load(model / "bare", engine="jax") as loaded:  # it lies in its checkpoint
        assert loaded.generate(prompt, max_new_tokens=12).text == wanted
    elsewhere = tmp_path / "bare"
    shutil.copytree(model / "bare", elsewhere)
    with pytest.raises(InputError, match=r"bare has no weights.irpa, and its module takes weights: .* as `checkpoint`"):
        tapeline.load(elsewhere, engine="jax")
    assert tapeline.Bundle(elsewhere).weights(model) is not None
    (elsewhere / "checkpoint").symlink_to(model)
    assert tapeline.Bundle(elsewhere).weights() is not None


def test_refusals(model: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    shutil.copytree(model, other)
    fields = json.loads((other / "config.json").read_text())
    (other / "config.json").write_text(json.dumps({**fields, "rope_theta": 5000.0}))
    bare = tapeline.Bundle(model / "bare")
    with pytest.raises(InputError, match=r"checkpoint=.*other: its config.json is not that of .*bare: give the check"):
        bare.weights(other)
    with pytest.raises(InputError, match=r"checkpoint=.*empty: .*config.json cannot be read .*: give the model's dir"):
        bare.weights(tmp_path / "empty")
    with pytest.raises(InputError, match=r"checkpoint=here goes with engine=jax or eager: iree maps an archive"):
        Place("iree", checkpoint=Path("here"))
    packed = tapeline.export(model, tmp_path / "packed", weights="none", quantize="q8_0", target=[], sequence=4)
    with pytest.raises(InputError, match=r"is .*, and .* in .*packed, which packs it: export with weights=external"):
        packed.weights(model)
