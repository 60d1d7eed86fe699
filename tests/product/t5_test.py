"""T5, exported and run on a device: the source once, then an answer token by token, as transformers does."""

import os
from pathlib import Path

import numpy as np
import pytest

from lang_core import InputError
from run_iree import available, target_of_device
from tapeline.bundle import Bundle
from tapeline.server import Loading, load_bundle
from tests.goldens.encoders.cases import ENCODER_CASES
from tests.goldens.encoders.files import read_encoder_golden, write_encoder_checkpoint
from tests.product._bundles import export, invoke

_DEVICE = os.environ.get("TAPELINE_DEVICE", "local-task")
_TOLERANCE = 2e-4  # of the greatest logit
# TAPELINE_LONG=1 in the environment asks for both.
_NAMES = ("t5", "t5_gated") if os.environ.get("TAPELINE_LONG") else ("t5",)
pytestmark = pytest.mark.skipif(not available(_DEVICE)[0], reason=str(available(_DEVICE)[1]))


@pytest.mark.parametrize("name", _NAMES)
def test_generation(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BUILD_WORKING_DIRECTORY", str(tmp_path))
    case, golden, row = ENCODER_CASES[name], read_encoder_golden(name), 1
    (tmp_path / "model").mkdir()
    write_encoder_checkpoint(tmp_path / "model", case)
    for key in ("token_ids", "attention_mask"):
        np.save(tmp_path / f"{key}.npy", golden.inputs[key][row : row + 1])
    sizes = {"sequence": golden.inputs["token_ids"].shape[1], "max_sequence": case.steps + 1}
    bundle = export(
        tmp_path / "model", tmp_path / "bundle", target=(target_of_device(_DEVICE),), verify="auto", **sizes
    )
    sources = [f"--input={key}={key}.npy" for key in ("token_ids", "attention_mask")]
    flags = (f"--max_new_tokens={case.steps}", "--ignore_eos", f"--device={_DEVICE}", "--logits=logits.npy")
    done = invoke("generate", capsys, f"--bundle={bundle}", "--token_ids=0", *flags, *sources)
    assert done.code == 0, done.err
    assert [int(token) for token in done.out.replace(",", " ").split()] == golden.outputs["tokens"][row].tolist()
    expected = golden.outputs["step_logits"][row]
    assert np.abs(np.load(tmp_path / "logits.npy") - expected).max() < _TOLERANCE * np.abs(expected).max()
    missing = invoke("generate", capsys, f"--bundle={bundle}", "--token_ids=0", *flags, sources[0])
    assert missing.code == 2
    assert "entry point 'encode': --input is missing for attention_mask" in missing.err


def test_it_is_not_served_without_a_tokenizer(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    write_encoder_checkpoint(tmp_path / "model", ENCODER_CASES["t5"])
    bundle = export(tmp_path / "model", tmp_path / "bundle", target=(), sequence=8, max_sequence=8)
    with pytest.raises(InputError, match=r"bundle has no tokenizer.json: copy it from the model's source"):
        load_bundle("t5", Bundle(bundle), Loading())
