"""Models as directories that transformers loads: tensors are those of the checkpoint, bit for bit."""

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tapeline
from lang_core import InputError
from tests.goldens.cases import CASES
from tests.goldens.encoders.cases import ENCODER_CASES
from tests.goldens.encoders.files import write_encoder_checkpoint
from tests.goldens.gguf_files import write_gguf
from tests.goldens.weights import write_checkpoint
from transformer_core.checkpoints import SafetensorsCheckpoint

_LONG = os.environ.get("TAPELINE_LONG") == "1"
_SOME = ("llama_tied", "phi3_window_4x", "gpt2", "gpt_oss", "gemma3_wrapped_4x", "opt")
_FILES = (
    "llama_gqa",
    "phi3_window_4x",
    "gpt2",
    "qwen3_moe",
)  # whose GGUF files have the very numbers of the checkpoint


def _check(checkpoint: Path, converted: Path) -> None:
    with SafetensorsCheckpoint(checkpoint) as expected, SafetensorsCheckpoint(converted) as actual:
        assert set(actual.keys()) == set(expected.keys())
        for key in expected.keys():  # noqa: SIM118 - a checkpoint is no mapping
            assert actual.spec(key) == expected.spec(key)
            np.testing.assert_array_equal(actual.read(key), expected.read(key), err_msg=key)
    assert not list(converted.parent.glob(".*partial"))


@pytest.mark.parametrize("name", CASES if _LONG else _SOME)
def test_a_checkpoint_stays_as_it_is(name: str, tmp_path: Path) -> None:
    write_checkpoint(tmp_path, CASES[name])
    done = tapeline.convert(tmp_path, tmp_path / "converted")
    _check(tmp_path, done.path)
    with SafetensorsCheckpoint(tmp_path) as checkpoint:
        keys = [*checkpoint.keys()]
        assert (done.tensors, done.nbytes) == (len(keys), sum(checkpoint.spec(key).nbytes for key in keys))
    assert json.loads((done.path / "config.json").read_text())["torch_dtype"] in ("float32", "bfloat16", "float16")


@pytest.mark.parametrize("name", ENCODER_CASES if _LONG else ["bert_classifier", "t5_gated"])
def test_an_encoder_stays_as_it_is(name: str, tmp_path: Path) -> None:
    write_encoder_checkpoint(tmp_path, ENCODER_CASES[name])
    _check(tmp_path, tapeline.convert(tmp_path, tmp_path / "converted").path)


@pytest.mark.parametrize("name", _FILES)
def test_a_gguf_file_becomes_the_checkpoint_that_it_was_made_from(name: str, tmp_path: Path) -> None:
    write_checkpoint(tmp_path, CASES[name])
    write_gguf(tmp_path / "model.gguf", CASES[name])
    _check(tmp_path, tapeline.convert(tmp_path / "model.gguf", tmp_path / "converted").path)


def test_several_files_dtypes_and_what_does_not_fit(tmp_path: Path) -> None:
    case = CASES["llama_gqa"]
    write_checkpoint(tmp_path, case)
    whole = tapeline.convert(tmp_path, tmp_path / "f32", dtype="f32")
    parts = tapeline.convert(tmp_path, tmp_path / "parts", dtype="bf16", shard_bytes=whole.nbytes // 6)
    assert len(list(parts.path.glob("*.safetensors"))) == 3
    with SafetensorsCheckpoint(whole.path) as exact, SafetensorsCheckpoint(parts.path) as rounded:
        for key in exact.keys():  # noqa: SIM118 - a checkpoint is no mapping
            assert rounded.spec(key).dtype.name == "bf16"
            np.testing.assert_array_equal(rounded.read(key), exact.read(key).astype(rounded.read(key).dtype))
    with pytest.raises(InputError, match=r"output=.*f32: exists, and only a new or empty directory is written"):
        tapeline.convert(tmp_path, whole.path)
    with pytest.raises(InputError, match="dtype=f8: expected one of f32, bf16, f16"):
        tapeline.convert(tmp_path, tmp_path / "f8", dtype="f8")
    weights: Any = None
    with SafetensorsCheckpoint(whole.path) as exact:
        weights = {key: exact.read(key).copy() for key in exact.keys()}  # noqa: SIM118
    weights["model.norm.weight"][3] = 1e6
    write_gguf(tmp_path / "large.gguf", case, weights=weights)
    with pytest.raises(InputError, match=r"model\.norm\.weight has a value beyond the range of f16: give dtype=bf16"):
        tapeline.convert(tmp_path / "large.gguf", tmp_path / "large", dtype="f16")
    assert not (tmp_path / "large").exists()


def test_what_a_gguf_file_does_not_tell_is_refused(tmp_path: Path) -> None:
    write_gguf(tmp_path / "model.gguf", CASES["ernie4_5_moe_biases"])
    with pytest.raises(InputError, match="Ernie4_5_MoeForCausalLM have other names or shapes in transformers"):
        tapeline.convert(tmp_path / "model.gguf", tmp_path / "converted")
