import json
import os
from collections.abc import Iterator
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
import safetensors
from hypothesis import given, settings
from hypothesis import strategies as st

from lang_core import DTYPES, InputError, TensorSpec, bf16, f32, i32
from transformer_core.checkpoints._checkpoint import SafetensorsCheckpoint
from transformer_core.checkpoints._random_llama import LLAMA_PRESETS, llama_specs, write_random_llama
from transformer_core.checkpoints._writer import (
    write_safetensors,
    write_sharded_safetensors,
    write_sparse_safetensors,
)

SHAPES = st.lists(st.integers(0, 5), max_size=3).map(tuple)


def values(key: str, spec: TensorSpec) -> np.ndarray:
    bits = np.random.default_rng(sum(key.encode())).integers(0, 2, spec.nbytes, np.uint8)
    return bits.view(spec.dtype.numpy).reshape(spec.shape)


def row_chunks(key: str, spec: TensorSpec) -> Iterator[np.ndarray]:
    array = values(key, spec)
    yield from array if array.ndim else [array]


@settings(max_examples=60, deadline=None)
@given(
    st.dictionaries(
        st.text(max_size=6).filter(lambda key: key != "__metadata__"),
        st.builds(TensorSpec, SHAPES, st.sampled_from(DTYPES)),
        max_size=6,
    )
)
def test_the_library_reads_what_was_written(
    tmp_path_factory: pytest.TempPathFactory, specs: dict[str, TensorSpec]
) -> None:
    path = tmp_path_factory.getbasetemp() / "written.safetensors"
    assert write_safetensors(path, specs, row_chunks) == path.stat().st_size
    loaded = dict(safetensors.deserialize(path.read_bytes()))
    assert set(loaded) == set(specs)
    for key, spec in specs.items():
        value = loaded[key]
        assert (tuple(value["shape"]), value["dtype"]) == (spec.shape, spec.dtype.name.upper())
        assert bytes(value["data"]) == values(key, spec).tobytes()


def test_tensors_are_aligned(tmp_path: Path) -> None:
    specs = {"flag": TensorSpec((3,), "bool"), "w": TensorSpec((5,), "f64"), "h": TensorSpec((3,), "bf16")}
    write_safetensors(tmp_path / "model.safetensors", specs, row_chunks, metadata={"format": "pt"})
    with SafetensorsCheckpoint(tmp_path) as checkpoint:
        assert list(checkpoint.keys()) == ["w", "h", "flag"]
        assert all(checkpoint.read(key).flags.aligned for key in specs)


@pytest.mark.parametrize("shards", [1, 2, 3, 5])
def test_shards_cover_every_tensor(tmp_path: Path, shards: int) -> None:
    sizes = [1000, 1, 1, 1, 1000]
    specs = {f"w{number}": TensorSpec((size, 2), "f16") for number, size in enumerate(sizes)}
    paths = write_sharded_safetensors(tmp_path, specs, row_chunks, shards)
    assert len(paths) == (1 if shards == 1 else shards + 1)
    assert sorted(os.path.basename(path) for path in paths) == sorted(os.listdir(tmp_path))
    with SafetensorsCheckpoint(tmp_path) as checkpoint:
        for key, spec in specs.items():
            assert checkpoint.read(key).tobytes() == values(key, spec).tobytes()
        assert len({checkpoint.origin(key) for key in specs}) == shards


def test_more_shards_than_tensors_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="3 shards asked for 1 tensors: use 1 to 1"):
        write_sharded_safetensors(tmp_path, {"w": TensorSpec((2,), "f32")}, row_chunks, 3)


def test_wrong_chunks_leave_no_file(tmp_path: Path) -> None:
    specs = {"w": TensorSpec((2, 3), "bf16")}
    path = tmp_path / "w.safetensors"
    path.write_bytes(b"before")
    rows = np.ones((1, 3), ml_dtypes.bfloat16)
    for chunks, message in (
        ([rows], "tensor 'w': chunks hold 3 elements, .* has 6"),
        ([rows] * 3, r"chunk bfloat16\[1, 3\] does not fit bf16\[2,3\]"),
        ([rows.astype(np.float32)] * 2, "does not fit"),
    ):
        with pytest.raises(InputError, match=message):
            write_safetensors(path, specs, lambda key, spec, chunks=chunks: chunks)
    assert path.read_bytes() == b"before"
    assert os.listdir(tmp_path) == ["w.safetensors"]


def test_unwritable_place_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"absent/w.safetensors: cannot write the checkpoint: No such file"):
        write_safetensors(tmp_path / "absent" / "w.safetensors", {"w": TensorSpec((), "f32")}, row_chunks)


def test_a_sparse_file_reads_as_zeros_and_takes_no_room(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    size = write_sparse_safetensors(path, {"a": TensorSpec((3, 1 << 20), "f32"), "b": TensorSpec((5,), "bf16")})
    assert path.stat().st_size == size > 12 << 20
    assert path.stat().st_blocks * 512 < 1 << 20
    with safetensors.safe_open(path, framework="np") as file:
        assert not file.get_slice("a")[1].any()


def test_tinyllama_has_its_number_of_parameters() -> None:
    specs = llama_specs(LLAMA_PRESETS["tinyllama-1.1b"], bf16)
    assert sum(spec.size for spec in specs.values()) == 1_100_048_384  # the figure of the model's card
    assert specs["model.layers.21.self_attn.k_proj.weight"].shape == (256, 2048)


def test_shards_and_single_file_hold_the_same_values(tmp_path: Path) -> None:
    sizes = LLAMA_PRESETS["tiny"]
    write_random_llama(tmp_path / "one", sizes, bf16, seed=3)
    write_random_llama(tmp_path / "three", sizes, bf16, seed=3, shards=3)
    with SafetensorsCheckpoint(tmp_path / "one") as one, SafetensorsCheckpoint(tmp_path / "three") as three:
        assert set(one.keys()) == set(three.keys()) == set(llama_specs(sizes, bf16))
        assert all(one.read(key).tobytes() == three.read(key).tobytes() for key in one.keys())  # noqa: SIM118
        assert (one.read("model.norm.weight") == 1).all()
        head = one.read("lm_head.weight").astype(np.float32)
        assert abs(head.std() - 0.02) < 1e-3
        assert abs(head.mean()) < 1e-3
    config = json.loads((tmp_path / "one" / "config.json").read_text())
    assert (config["model_type"], config["num_key_value_heads"], config["torch_dtype"]) == ("llama", 2, "bfloat16")


def test_what_cannot_be_written_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="random weights are f32, f16, bf16, not i32"):
        write_random_llama(tmp_path, LLAMA_PRESETS["tiny"], i32)
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="file: cannot write the checkpoint"):
        write_random_llama(tmp_path / "file", LLAMA_PRESETS["tiny"], f32)
