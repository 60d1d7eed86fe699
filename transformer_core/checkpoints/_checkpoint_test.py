import json
import os
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy

from lang_core import CheckpointError, TensorSpec, WeightSource
from transformer_core.checkpoints._checkpoint import INDEX_FILE, SafetensorsCheckpoint

A = np.arange(6, dtype=np.float32).reshape(2, 3)
B = np.arange(4, dtype=np.int32)


def sharded(directory: Path, weight_map: object = None) -> Path:
    safetensors.numpy.save_file({"a": A}, directory / "model-00001-of-00002.safetensors")
    safetensors.numpy.save_file({"b": B}, directory / "model-00002-of-00002.safetensors")
    if weight_map is None:
        weight_map = {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}
    (directory / INDEX_FILE).write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
    return directory


def test_single_file(tmp_path: Path) -> None:
    safetensors.numpy.save_file({"a": A, "b": B}, tmp_path / "model.safetensors")
    with SafetensorsCheckpoint(tmp_path) as checkpoint:
        assert isinstance(checkpoint, WeightSource)
        assert set(checkpoint.keys()) == {"a", "b"}
        assert checkpoint.spec("a") == TensorSpec((2, 3), "f32")
        np.testing.assert_array_equal(checkpoint.read_rows("a", 1, 2), A[1:])
        assert checkpoint.origin("a") == str(tmp_path / "model.safetensors")
        with pytest.raises(CheckpointError, match="no tensor 'aa' in the checkpoint; did you mean 'a'"):
            checkpoint.read("aa")
    with pytest.raises(CheckpointError, match="closed checkpoint"):
        checkpoint.read("a")


def test_shards(tmp_path: Path) -> None:
    with SafetensorsCheckpoint(sharded(tmp_path)) as checkpoint:
        assert list(checkpoint.keys()) == ["a", "b"]
        assert checkpoint.has("b")
        np.testing.assert_array_equal(checkpoint.read("b"), B)
        assert checkpoint.origin("b").endswith("model-00002-of-00002.safetensors")
        for use in (checkpoint.spec, checkpoint.read, checkpoint.origin):
            with pytest.raises(CheckpointError, match="no tensor 'c' in the checkpoint"):
                use("c")


def test_a_link_into_a_cache_is_followed(tmp_path: Path) -> None:
    blobs, snapshot = tmp_path / "blobs", tmp_path / "snapshot"
    blobs.mkdir()
    snapshot.mkdir()
    safetensors.numpy.save_file({"a": A}, blobs / "0123abcd")
    (snapshot / "model.safetensors").symlink_to("../blobs/0123abcd")
    with SafetensorsCheckpoint(snapshot) as checkpoint:
        np.testing.assert_array_equal(checkpoint.read("a"), A)


OUTSIDE = ["../x.safetensors", "/etc/x.safetensors", "sub/x.safetensors", "..", ".", "", "x.bin", "c:\\x.safetensors"]


@pytest.mark.parametrize("name", [*OUTSIDE, ".x.safetensors", "a\0.safetensors", 3, None])
def test_shard_outside_of_the_directory_is_refused(tmp_path: Path, name: object) -> None:
    directory = tmp_path / "model"
    directory.mkdir()
    safetensors.numpy.save_file({"a": A}, tmp_path / "x.safetensors")
    sharded(directory, {"a": name})
    with pytest.raises(CheckpointError, match=r"index\.json: tensor 'a' is mapped to .*plain name .*never read"):
        SafetensorsCheckpoint(directory)


def test_index_and_shards_must_agree(tmp_path: Path) -> None:
    first, second = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"
    for weight_map, message in (
        ({"a": first, "b": "model-00003-of-00003.safetensors"}, r"shard 'model-00003.*is not in .*'b'.*finish"),
        ({"a": first, "b": first}, r"tensor 'b' is mapped to .*00001-of-00002.safetensors, which lacks it"),
        ({"a": first, "b": second, "aa": first}, r"tensor 'aa' is mapped .* lacks it; did you mean 'a'"),
        ({}, r"weight_map is \{\}, expected an object"),
        ([], "weight_map is"),
    ):
        sharded(tmp_path, weight_map)
        with pytest.raises(CheckpointError, match=message):
            SafetensorsCheckpoint(tmp_path)
    safetensors.numpy.save_file({"a": A, "extra": B, "more": B}, tmp_path / first)
    (tmp_path / INDEX_FILE).write_text(json.dumps({"weight_map": {"a": first}}))
    with pytest.raises(CheckpointError, match="tensor 'extra' and 1 more not listed for this shard"):
        SafetensorsCheckpoint(tmp_path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "the index is not JSON"),
        ("[]", "a JSON list"),
        ("{}", "weight_map is None"),
        ('{"weight_map": {"a": "x.safetensors", "a": "y.safetensors"}}', "key 'a' twice"),
    ],
)
def test_damaged_index(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / INDEX_FILE).write_text(text)
    with pytest.raises(CheckpointError, match=message):
        SafetensorsCheckpoint(tmp_path)


def test_index_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / INDEX_FILE).mkdir()
    with pytest.raises(CheckpointError, match="cannot read the index"):
        SafetensorsCheckpoint(tmp_path)


def test_directory_without_safetensors(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="no such directory"):
        SafetensorsCheckpoint(tmp_path / "absent")
    with pytest.raises(CheckpointError, match="cannot list"):
        SafetensorsCheckpoint("a\0b")
    with pytest.raises(CheckpointError, match="found an empty directory"):
        SafetensorsCheckpoint(tmp_path)
    (tmp_path / "pytorch_model.bin").write_bytes(b"\x80\x02")
    with pytest.raises(
        CheckpointError, match=r"only pytorch_model.bin: a pickle can run code and is never loaded: conv"
    ):
        SafetensorsCheckpoint(tmp_path)
    with pytest.raises(CheckpointError, match="is a file, expected the checkpoint's directory"):
        SafetensorsCheckpoint(tmp_path / "pytorch_model.bin")
    (tmp_path / "other.safetensors").write_bytes(b"")
    with pytest.raises(CheckpointError, match=r"but other\.safetensors: rename"):
        SafetensorsCheckpoint(tmp_path)


def test_damaged_shard_leaves_nothing_open(tmp_path: Path) -> None:
    directory = sharded(tmp_path)
    (directory / "model-00002-of-00002.safetensors").write_bytes(b"1234567")
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(CheckpointError, match=r"model-00002-of-00002\.safetensors: truncated: 7 bytes"):
        SafetensorsCheckpoint(directory)
    assert len(os.listdir("/proc/self/fd")) == before
