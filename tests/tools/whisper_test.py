"""Whisper, exported and run on a device: the encoder once, then token by token, as transformers does."""

import os

import numpy as np
import pytest

from compile_hlo.bundle import Bundle
from compile_hlo.iree import available, target_of_device
from tests.goldens.encoders.cases import ENCODER_CASES
from tests.goldens.encoders.files import read_encoder_golden, write_encoder_checkpoint
from tests.tools._bundles import export

_DEVICE = os.environ.get("TAPELINE_DEVICE", "local-task")
_TOLERANCE = 2e-4  # of the greatest logit
_CASE, _GOLDEN = ENCODER_CASES["whisper"], read_encoder_golden("whisper")
pytestmark = pytest.mark.skipif(not available(_DEVICE)[0], reason=str(available(_DEVICE)[1]))


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    """A call of prefill takes one token more than the prompt has."""
    folder = tmp_path_factory.mktemp("whisper")
    model = folder / "model"
    model.mkdir()
    write_encoder_checkpoint(model, _CASE)
    sizes = {"batch": 2, "sequence": _GOLDEN.inputs["token_ids"].shape[1] + 1}
    targets = (target_of_device(_DEVICE),)
    return Bundle(export(model, folder / "bundle", targets=targets, verify="auto", **sizes))


def test_directions_and_what_is_donated(bundle: Bundle) -> None:
    assert [each.name for each in bundle.config.entry_points] == ["encode", "prefill", "decode"]
    for name in ("prefill", "decode"):
        for each in bundle.entry_point(name).args:
            expected = "INOUT" if each.name.endswith("_cache") else "IN"
            assert (each.direction, each.donated) == (expected, expected == "INOUT"), each.name


def test_greedy_steps(bundle: Bundle) -> None:
    prompt, wanted = _GOLDEN.inputs["token_ids"], _GOLDEN.outputs
    length = prompt.shape[1]
    padded = np.pad(prompt, ((0, 0), (0, 1)))
    with bundle.session(_DEVICE) as session:
        encode, prefill, decode = (session.function(each.name) for each in bundle.config.entry_points)
        states, *cross = encode(_GOLDEN.inputs["input_features"])
        assert np.abs(states.numpy() - wanted["encoded"]).max() < _TOLERANCE * np.abs(wanted["encoded"]).max()
        caches = [session.zeros(each.spec) for each in bundle.entry_point("prefill").args if each.donated]
        logits, *caches = prefill(padded, 0, length - 1, *caches, *cross)
        for step in range(_CASE.steps):
            found, expected = logits.numpy(), wanted["step_logits"][:, step]
            assert np.abs(found - expected).max() < _TOLERANCE * np.abs(expected).max(), f"step {step}"
            tokens = found.argmax(-1).astype(np.int32)
            np.testing.assert_array_equal(tokens, wanted["tokens"][:, step], err_msg=f"step {step}")
            logits, *caches = decode(tokens[:, None], length + step, *caches, *cross)
