"""Whisper, exported and run on a device: the encoder once, then token by token, as transformers does."""

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from run_iree import available, target_of_device
from tapeline.bundle import Bundle
from tests.goldens.encoders.cases import ENCODER_CASES
from tests.goldens.encoders.files import read_encoder_golden, write_encoder_checkpoint
from tests.product._bundles import Finished, export, invoke

Generating = Callable[..., Finished]

_DEVICE = os.environ.get("TAPELINE_DEVICE", "local-task")
_TOLERANCE = 2e-4  # of the greatest logit
_CASE, _GOLDEN = ENCODER_CASES["whisper"], read_encoder_golden("whisper")
_PROMPT, _FEATURES = _GOLDEN.inputs["token_ids"][:1], _GOLDEN.inputs["input_features"][:1]
pytestmark = pytest.mark.skipif(not available(_DEVICE)[0], reason=str(available(_DEVICE)[1]))


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    """A call of prefill takes one token more than the prompt has."""
    folder = tmp_path_factory.mktemp("whisper")
    model = folder / "model"
    model.mkdir()
    write_encoder_checkpoint(model, _CASE)
    targets = (target_of_device(_DEVICE),)
    return Bundle(export(model, folder / "bundle", target=targets, verify="auto", sequence=_PROMPT.shape[1] + 1))


def test_directions_and_what_is_donated(bundle: Bundle) -> None:
    assert [point.name for point in bundle.config.entry_points] == ["encode", "prefill", "decode"]
    for name in ("prefill", "decode"):
        for argument in bundle.entry_point(name).arguments:
            expected = "INOUT" if argument.name.endswith("_cache") else "IN"
            assert (argument.declared, argument.donated) == (expected, expected == "INOUT"), argument.name


def test_greedy_steps(bundle: Bundle) -> None:
    """Calls of the entry points as a user's own program makes them."""
    length, padded = _PROMPT.shape[1], np.pad(_PROMPT, ((0, 0), (0, 1)))
    with bundle.session(_DEVICE) as session:
        encode, prefill, decode = (session.function(point.name) for point in bundle.config.entry_points)
        states, *cross = encode(_FEATURES)
        expected = _GOLDEN.outputs["encoded"][:1]
        assert np.abs(states.numpy() - expected).max() < _TOLERANCE * np.abs(expected).max()
        caches = [
            session.zeros(argument.spec) for argument in bundle.entry_point("prefill").arguments if argument.donated
        ]
        _, *caches, next_ids = prefill(padded, 0, length - 1, *caches, *cross)
        for step in range(_CASE.steps):
            (token,) = next_ids.numpy().tolist()
            assert token == _GOLDEN.outputs["tokens"][0, step], f"step {step}"
            _, *caches, next_ids = decode(np.array([[token]], np.int32), length + step, *caches, *cross)


@pytest.fixture
def generating(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Generating:
    monkeypatch.setenv("BUILD_WORKING_DIRECTORY", str(tmp_path))
    np.save(tmp_path / "features.npy", _FEATURES)
    ids = ",".join(map(str, _PROMPT[0]))
    flags = (f"--token_ids={ids}", f"--max_new_tokens={_CASE.steps}", "--ignore_eos", f"--device={_DEVICE}")
    return lambda bundle, *more: invoke("generate", capsys, f"--bundle={bundle.path}", *flags, *more)


def test_generation(bundle: Bundle, generating: Generating, tmp_path: Path) -> None:
    done = generating(bundle, "--input=input_features=features.npy", "--logits=logits.npy")
    assert done.code == 0, done.err
    assert [int(token) for token in done.out.replace(",", " ").split()] == _GOLDEN.outputs["tokens"][0].tolist()
    expected = _GOLDEN.outputs["step_logits"][0]
    assert np.abs(np.load(tmp_path / "logits.npy") - expected).max() < _TOLERANCE * np.abs(expected).max()


def test_bad_input(bundle: Bundle, generating: Generating) -> None:
    done = generating(bundle)
    assert done.code == 2
    assert "entry point 'encode': --input is missing for input_features" in done.err


@pytest.mark.skipif(not os.environ.get("TAPELINE_LONG"), reason="compiles a second module: TAPELINE_LONG=1")
def test_a_decoder_without_its_encoder(bundle: Bundle, generating: Generating, tmp_path: Path) -> None:
    model = bundle.path.parent / "model"
    sizes = {"target": (target_of_device(_DEVICE),), "sequence": 1, "num_layers": 1}
    alone = Bundle(export(model, tmp_path / "alone", entry_points=("prefill", "decode"), **sizes))
    done = generating(alone)
    assert done.code == 2
    assert "prefill takes 'layers.0.cross_key', which encode gives, and there is no encode: export with" in done.err
    done = generating(alone, "--input=input_features=features.npy")
    assert done.code == 2
    assert "has the entry points prefill, decode, and no encode that would take it: leave it out" in done.err
