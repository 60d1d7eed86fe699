"""The demo checkpoint: stable, readable by others' readers, with a tokenizer that is what the script trains."""

import hashlib
import json
import os
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from safetensors import safe_open

from lang_core import EagerExecutionContext, InputError
from tapeline.demo import write_demo_checkpoint
from tapeline.text import find_tokenizer
from tools.demo import train, train_tokenizer
from transformer_core.checkpoints import SafetensorsCheckpoint
from transformer_core.models import DecoderConfig, DecoderLM
from transformer_core.training import cross_entropy

# What a change of one of these means: every bundle and golden made from the demo model is to be made again.
_SHA256 = {
    "config.json": "f4fd666221fcb83d006f4d06678d89d1dc326bf61ab8fe77935dc116ad4522b4",
    "generation_config.json": "03dc0a9172940c92ad99d4a439c9e82cff735665c4ee502c7be52055665f7ff5",
    "model.safetensors": "0c5b8f18153bf156919ca5f3cf888dab577149e81f514bd2886067ac43a8ae59",
    "tokenizer.json": "dd011fb0e089b808a462378bfc3e748df14d365e91def55b4652f71d10f453ef",
    "tokenizer_config.json": "5619e3d7913caec240cd168b2e80cdcb37620b64d8283ac78d0bc2ffd082fb1e",
}


@pytest.fixture(name="directory")
def _directory(tmp_path: Path) -> Path:
    directory = tmp_path / "a" / "demo"
    write_demo_checkpoint(directory)
    return directory


def test_bytes_are_stable(directory: Path) -> None:
    digests = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(directory.iterdir())}
    assert digests == _SHA256


def test_safetensors_library_reads_it(directory: Path) -> None:
    config = json.loads((directory / "config.json").read_text())
    with safe_open(directory / "model.safetensors", framework="numpy") as file:
        assert file.metadata() == {"format": "pt"}
        tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118 (no mapping)
    assert len(tensors) == 9 * config["num_hidden_layers"] + 3
    assert tensors["model.embed_tokens.weight"].shape == (512, 64)
    assert tensors["model.layers.3.self_attn.k_proj.weight"].shape == (32, 64)
    assert tensors["model.layers.0.mlp.down_proj.weight"].shape == (64, 160)
    assert {tensor.dtype for tensor in tensors.values()} == {np.dtype(np.float32)}


def test_bf16_loses_nothing_of_the_weights(directory: Path) -> None:
    with safe_open(directory / "model.safetensors", framework="numpy") as file:
        for key in file.keys():  # noqa: SIM118 (no mapping)
            values = file.get_tensor(key)
            np.testing.assert_array_equal(values.astype(ml_dtypes.bfloat16).astype(np.float32), values)


def test_the_model_has_learned_its_text(directory: Path) -> None:
    """The mean loss over whole paragraphs, and how one goes on."""
    config = json.loads((directory / "config.json").read_text())
    with SafetensorsCheckpoint(directory) as weights:
        ctx = EagerExecutionContext(weights)
        model = DecoderLM(DecoderConfig.from_hf(config))
        losses = []
        for document in train.documents():
            ids = np.array([[0, *document]], np.int32)[:, :129]
            losses.append(float(cross_entropy(ctx, model(ctx, ctx.constant(ids[:, :-1])), ctx.constant(ids[:, 1:]))))
        assert np.mean(losses) < 0.15
        tokenizer = find_tokenizer(directory)
        assert tokenizer is not None
        begun = tokenizer.encode("It was the best of times,")
        ids = list(begun)
        for _ in range(12):
            ids.append(int(np.argmax(model(ctx, ctx.constant(np.array([ids], np.int32))).numpy()[0, -1])))
    assert " it was the worst of times, it was".startswith(tokenizer.decode(ids[len(begun) :])[:24])


def test_data_begins_aligned(directory: Path) -> None:
    start = int.from_bytes((directory / "model.safetensors").read_bytes()[:8], "little")
    assert start % 8 == 0


def test_tokenizer_is_what_the_script_trains(tmp_path: Path, directory: Path) -> None:
    made = tmp_path / "tokenizer.json"
    train_tokenizer.train(train_tokenizer.CORPUS).save(str(made))
    assert made.read_text(encoding="utf-8") == (directory / "tokenizer.json").read_text(encoding="utf-8")


@pytest.mark.parametrize("text", ["The tape tells the whole story.", "  two spaces", "日本語 🙂 ñ\x00\n", "<tag>"])
def test_tokenizer_takes_any_text(directory: Path, text: str) -> None:
    tokenizer = find_tokenizer(directory)
    assert tokenizer is not None
    assert tokenizer.vocabulary_size == 512
    ids = tokenizer.encode(text, model_size=512)
    assert ids[0] == 0
    assert tokenizer.decode(ids) == text


def test_tokenizer_compresses_english(directory: Path) -> None:
    tokenizer = find_tokenizer(directory)
    assert tokenizer is not None
    text = "The compiler reads the tape and writes the module."
    assert len(tokenizer.encode(text)) < 0.5 * len(text)


def test_again_over_an_old_one(directory: Path) -> None:
    (directory / "config.json").write_text("old")
    write_demo_checkpoint(directory)
    test_bytes_are_stable(directory)


def test_directory_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(
        InputError, match=r"cannot write the demo model to .*file: File exists .*can be written and has"
    ):
        write_demo_checkpoint(tmp_path / "file")


def test_failure_leaves_no_partial_file(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(source: object, target: object) -> None:
        raise OSError(28, "No space left on device", str(target))

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(InputError, match=r"cannot write the demo model to .*: No space left on device \(.*tokenizer"):
        write_demo_checkpoint(directory)
    assert sorted(path.name for path in directory.iterdir()) == sorted(_SHA256)
