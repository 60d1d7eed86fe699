"""GGUF files against the gguf package's own reader and dequantizers."""

import math
import tracemalloc
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, GGUFReader, GGUFWriter, quants

from lang_core import ENCODINGS, CheckpointError, TensorSpec, WeightSource
from transformer_core.checkpoints.gguf import PACKED, PLAIN, GgufFile

Type = GGMLQuantizationType


def random_blocks(kind: Type, shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    """Packed rows, u8 [.., bytes], of random bits; some scales come out NaN or infinite."""
    block, size = GGML_QUANT_SIZES[kind]
    random = np.random.default_rng(seed)
    return random.integers(0, 256, (*shape[:-1], shape[-1] // block * size), dtype=np.uint8)


def writer(path: Path, alignment: int = 32) -> GGUFWriter:
    made = GGUFWriter(path, "llama")
    if alignment != 32:
        made.add_custom_alignment(alignment)
    return made


def finish(made: GGUFWriter) -> None:
    made.write_header_to_file()
    made.write_kv_data_to_file()
    made.write_tensors_to_file()
    made.close()


PLAIN_ARRAYS = {
    "f32": np.arange(15, dtype=np.float32).reshape(5, 3) - 7,
    "f16": np.linspace(-2, 2, 6).astype(np.float16).reshape(2, 3),
    "f64": np.array([[math.pi]]),
    "i8": np.array([-3, 5, 0], np.int8),
    "i32": np.array([[7, -8]], np.int32),
    "i64": np.array([1 << 40], np.int64),
}
PACKED_SHAPES = {"m": (37, 512), "e": (3, 5, 256), "v": (768,)}


@pytest.fixture(scope="module")
def every_type(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("gguf") / "types.gguf"
    made = writer(path, alignment=64)
    for name, array in PLAIN_ARRAYS.items():
        made.add_tensor(name, array)
    bits = np.arange(24, dtype=np.float32).astype(ml_dtypes.bfloat16).reshape(4, 6)
    made.add_tensor("bf16", bits.view(np.uint8), raw_dtype=Type.BF16)
    for kind in PACKED:
        for name, shape in PACKED_SHAPES.items():
            made.add_tensor(f"{kind.name}.{name}", random_blocks(kind, shape, kind), raw_dtype=kind)
    finish(made)
    return path


def test_all_that_the_reference_unpacks_is_read() -> None:
    for kind in set(Type) - set(PLAIN) - {Type.I16}:
        packed = random_blocks(kind, (1, 256))
        if kind in PACKED:
            with np.errstate(all="ignore"):
                assert quants.dequantize(packed, kind).shape == (1, 256)
        else:
            with pytest.raises(NotImplementedError):
                quants.dequantize(packed, kind)
    assert not {*PLAIN} & {*PACKED}
    assert {name.upper() for name in ENCODINGS} < {kind.name for kind in PACKED}


def test_plain_types_are_views(every_type: Path) -> None:
    with GgufFile(every_type) as file:
        assert isinstance(file, WeightSource)
        for name, array in PLAIN_ARRAYS.items():
            value = file.read(name)
            assert (file.spec(name), file.encoding(name)) == (TensorSpec(array.shape, name), None)
            assert value.dtype == array.dtype
            assert not value.flags.owndata
            assert not value.flags.writeable
            np.testing.assert_array_equal(value, array)
            np.testing.assert_array_equal(file.read_rows(name, 1, 1), array[1:1])
        assert file.spec("bf16") == TensorSpec((4, 6), "bf16")
        assert file.read_rows("bf16", 1, 3).astype(np.float32).tolist() == [[*range(6, 12)], [*range(12, 18)]]
        assert file.origin("bf16") == str(every_type)
    assert len(PLAIN) == len(PLAIN_ARRAYS) + 1


@pytest.mark.parametrize("kind", PACKED, ids=lambda kind: kind.name)
def test_packed_types_are_the_references(kind: Type, every_type: Path) -> None:
    random = np.random.default_rng(kind)
    with GgufFile(every_type) as file, np.errstate(all="ignore"):
        for short, shape in PACKED_SHAPES.items():
            name = f"{kind.name}.{short}"
            packed = random_blocks(kind, shape, kind)
            expected = quants.dequantize(packed, kind)
            assert (file.spec(name), file.encoding(name)) == (TensorSpec(shape, "f32"), kind.name.lower())
            np.testing.assert_array_equal(file.read_packed(name), packed)
            np.testing.assert_array_equal(file.read(name), expected)
            for _ in range(8):
                start, stop = sorted(random.integers(0, shape[0] + 1, 2).tolist())
                rows = file.read_rows(name, start, stop)
                assert (rows.dtype, rows.shape) == (np.float32, (stop - start, *shape[1:]))
                np.testing.assert_array_equal(rows, expected[start:stop])


@pytest.mark.parametrize("key", ["Q4_K.e", "Q5_0.e", "Q8_0.m", "f32", "bf16"])
def test_rows_of_matrices(key: str, every_type: Path) -> None:
    with GgufFile(every_type) as file, np.errstate(all="ignore"):
        whole = file.read(key).reshape(-1, file.spec(key).shape[-1])
        for start in range(len(whole) + 1):
            for stop in range(start, len(whole) + 1, 3):
                np.testing.assert_array_equal(file.read_matrix_rows(key, start, stop), whole[start:stop])
        with pytest.raises(CheckpointError, match=rf"rows 0 to {len(whole) + 1} of tensor '{key}' asked, it has"):
            file.read_matrix_rows(key, 0, len(whole) + 1)
        with pytest.raises(CheckpointError, match=r"tensor 'Q4_K.v' of shape \[768\] has no matrices"):
            file.read_matrix_rows("Q4_K.v", 0, 1)


def test_the_header_is_what_the_reference_reads(tmp_path: Path) -> None:
    path = tmp_path / "meta.gguf"
    made = writer(path)
    fields: dict[str, Any] = {
        "a.u8": (made.add_uint8, 200), "a.i8": (made.add_int8, -3), "a.u16": (made.add_uint16, 65535),
        "a.i16": (made.add_int16, -300), "a.u32": (made.add_uint32, 1 << 31), "a.i32": (made.add_int32, -(1 << 31)),
        "a.u64": (made.add_uint64, 1 << 63), "a.i64": (made.add_int64, -5), "a.f32": (made.add_float32, 0.25),
        "a.f64": (made.add_float64, math.pi), "a.yes": (made.add_bool, True), "a.text": (made.add_string, "über 🙂"),
        "a.list": (made.add_array, [3, -4, 5]),
        "a.floats": (made.add_array, [0.5, -2.0]), "a.strings": (made.add_array, ["x", "", "▁日"]),
        "a.flags": (made.add_array, [True, False]),
    }  # fmt: skip
    for key, (add, value) in fields.items():
        add(key, value)
    made.add_tensor("w", np.arange(6, dtype=np.float32).reshape(2, 3))
    made.add_tensor("b", np.arange(5, dtype=np.float32))
    finish(made)
    file, reference = GgufFile(path), GGUFReader(path)
    assert {key: file.metadata[key] for key in fields} == {key: value for key, (_, value) in fields.items()}
    for field in fields:
        assert file.metadata[field] == reference.get_field(field).contents()  # pyright: ignore[reportOptionalMemberAccess]
    assert list(file.keys()) == [tensor.name for tensor in reference.tensors]
    for tensor in reference.tensors:
        np.testing.assert_array_equal(file.read(tensor.name), tensor.data)


def test_rows_that_are_not_there(every_type: Path) -> None:
    with GgufFile(every_type) as file:
        for name in ("f32", "Q4_K.v"):
            count = file.spec(name).shape[0]
            with pytest.raises(
                CheckpointError, match=rf"rows 2 to {count + 1} of tensor '{name}' asked, it has {count}"
            ):
                file.read_rows(name, 2, count + 1)


def test_closed_and_changed_files(every_type: Path, tmp_path: Path) -> None:
    path = tmp_path / "some.gguf"
    path.write_bytes(every_type.read_bytes())
    file = GgufFile(path)
    path.write_bytes(every_type.read_bytes() + b" ")
    with pytest.raises(CheckpointError, match=r"some.gguf: the file changed since its header was read: open it again"):
        file.read("f32")
    file = GgufFile(path)
    kept = file.read("f32")
    file.close()
    file.close()
    np.testing.assert_array_equal(kept, PLAIN_ARRAYS["f32"])
    with pytest.raises(CheckpointError, match="a tensor was asked of a closed checkpoint"):
        file.read("Q4_0.m")


def test_rows_cost_no_more_than_rows(tmp_path: Path) -> None:
    path, rows = tmp_path / "large.gguf", 4096
    made = writer(path)
    made.add_tensor("w", random_blocks(Type.Q4_0, (rows, 1024)), raw_dtype=Type.Q4_0)
    finish(made)
    with GgufFile(path) as file:
        file.read_rows("w", 0, 1)
        tracemalloc.start()
        try:
            file.read_rows("w", 100, 164)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    assert peak < 64 * 1024 * 4 * 4 < rows * 1024 * 4 / 8
