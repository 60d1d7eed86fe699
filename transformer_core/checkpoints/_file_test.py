import json
import os
from collections.abc import Callable
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
import safetensors
import safetensors.numpy
from hypothesis import given, settings
from hypothesis import strategies as st

from lang_core import DTYPES, CheckpointError, WeightSource
from transformer_core.checkpoints._file import SafetensorsFile


def raw(header: object, data: bytes = b"", length: int | None = None) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return (len(text) if length is None else length).to_bytes(8, "little") + text + data


def tensor(dtype: object = "F32", shape: object = (2, 3), offsets: object = (0, 24)) -> dict[str, object]:
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets}


@pytest.fixture
def write(tmp_path: Path) -> Callable[[bytes], str]:
    def written(content: bytes) -> str:
        path = tmp_path / "some.safetensors"
        path.write_bytes(content)
        return str(path)

    return written


DAMAGED = [
    (b"", "the file is empty"),
    (b"\0" * 7, "truncated: 7 bytes"),
    (raw({}, length=3), "truncated|bytes that no tensor owns|not JSON"),
    (raw({}, length=9), "truncated: the header's length is given as 9 bytes, 2 are there"),
    (raw({}, length=100_000_001), "given as 100000001 bytes, allowed are 100000000"),
    (raw({}, length=2**64 - 1), "allowed are 100000000"),
    (raw(b"{nonsense"), "the header is not JSON"),
    (raw(b"\xff\xfe{}"), "the header is not JSON"),
    (raw(b"[" * 100_000), "the header is not JSON"),
    (raw(b'{"a":' + b"9" * 5000 + b"}"), "the header is not JSON"),
    (raw([1]), "a JSON list, expected an object"),
    (raw(b'{"a": {}, "a": {}}'), "has the key 'a' twice"),
    (raw(b'{"a":{"dtype":"U8","dtype":"U8","shape":[0],"data_offsets":[0,0]}}'), "has the key 'dtype' twice"),
    (raw({"w": 3}), "tensor 'w': found 3, expected dtype, shape and data_offsets"),
    (raw({"w": {"dtype": "F32", "shape": [2]}}), "expected dtype, shape and data_offsets"),
    (raw({"w": tensor(dtype="Q4")}, bytes(24)), "tensor 'w': unknown dtype 'Q4'"),
    (raw({"w": tensor(dtype=["F32"])}, bytes(24)), "unknown dtype"),
    (raw({"w": tensor(shape=[-2, 3])}, bytes(24)), r"shape \[-2, 3\]"),
    (raw({"w": tensor(shape=[True, 6])}, bytes(24)), "shape .*expected a list of integers"),
    (raw({"w": tensor(shape=[2.0, 3])}, bytes(24)), "expected a list of integers"),
    (raw({"w": tensor(shape=6)}, bytes(24)), "expected a list of integers"),
    (raw({"w": tensor(shape=[2**70, 0], offsets=[0, 0])}), "beyond any tensor's"),
    (raw({"w": tensor(shape=[1] * 33, offsets=[0, 4])}, bytes(4)), r"beyond any tensor's \(rank 33\)"),
    (raw({"w": tensor(offsets=[0, 24, 48])}, bytes(24)), "expected two integers"),
    (raw({"w": tensor(offsets=[0, "24"])}, bytes(24)), "expected two integers"),
    (raw({"w": tensor(offsets=[24, 0])}, bytes(24)), "not a range of bytes"),
    (raw({"w": tensor(offsets=[-24, 0])}, bytes(24)), "not a range of bytes"),
    (raw({"w": tensor(offsets=[0, 20])}, bytes(20)), r"span 20 bytes, F32 of shape \[2, 3\] needs 24"),
    (raw({"w": tensor()}, bytes(20)), "tensor 'w' ends at byte .*: truncated"),
    (raw({"w": tensor()}, bytes(25)), "bytes that no tensor owns"),
    (raw({}, bytes(1)), "the header ends at byte 10, the file has 11"),
    (raw({"v": tensor(), "w": tensor(offsets=[20, 44])}, bytes(44)), "tensor 'w' .* overlaps tensor 'v', expected 24"),
    (raw({"v": tensor(), "w": tensor()}, bytes(24)), "overlaps tensor"),
    (raw({"v": tensor(), "w": tensor(offsets=[28, 52])}, bytes(52)), "leaves a hole after tensor 'v', expected 24"),
    (raw({"w": tensor(offsets=[4, 28])}, bytes(28)), "leaves a hole after the start of the data"),
    (raw({"w": tensor("F4", [3], [0, 1])}, bytes(1)), "needs 1"),
    (raw({"__metadata__": 3}), "__metadata__ is a int"),
    (raw({"__metadata__": {"step": 3}}), r"__metadata__\['step'\] is 3, expected a string"),
    (raw(b'{"\\ud800": {"dtype":"U8","shape":[0],"data_offsets":[0,0]}}'), "half of a surrogate pair"),
]


@pytest.mark.parametrize(("content", "message"), DAMAGED)
def test_damaged_file_is_named_with_what_is_wrong(write: Callable[[bytes], str], content: bytes, message: str) -> None:
    path = write(content)
    with pytest.raises(CheckpointError, match=message) as caught:
        SafetensorsFile(path)
    assert str(caught.value).startswith(path)


def test_absent_and_odd_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"absent\.safetensors: no such file"):
        SafetensorsFile(tmp_path / "absent.safetensors")
    with pytest.raises(CheckpointError, match="is a directory, expected a safetensors file"):
        SafetensorsFile(tmp_path)
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(CheckpointError, match="not a regular file"):
        SafetensorsFile(tmp_path / "fifo")
    with pytest.raises(CheckpointError, match="cannot read the safetensors file"):
        SafetensorsFile("a\0b")


def test_dtype_without_reader_is_an_error_of_its_use_only(write: Callable[[bytes], str]) -> None:
    header = {"half": tensor("F8_E4M3", [3], [0, 3]), "odd": tensor("I16", [1], [3, 5]), "w": tensor("U8", [2], [5, 7])}
    with SafetensorsFile(write(raw(header, b"abcde\1\2"))) as file:
        assert file.read("w").tolist() == [1, 2]
        assert file.has("half")
        assert list(file.keys()) == ["half", "odd", "w"]
        for use in (file.spec, file.read, lambda key: file.read_rows(key, 0, 1)):
            with pytest.raises(CheckpointError, match=r"tensor 'half' has dtype F8_E4M3, readable are F32.*convert"):
                use("half")


def test_missing_key_lists_near_names(write: Callable[[bytes], str]) -> None:
    with SafetensorsFile(write(raw({"layer.weight": tensor()}, bytes(24)))) as file:
        assert not file.has("layer.wieght")
        with pytest.raises(CheckpointError, match=r"no tensor 'layer.wieght'; did you mean 'layer.weight'\?"):
            file.read("layer.wieght")
        with pytest.raises(CheckpointError, match=r"rows 1 to 3 of tensor 'layer.weight' asked, it has 2"):
            file.read_rows("layer.weight", 1, 3)


def test_metadata_is_not_a_tensor(write: Callable[[bytes], str]) -> None:
    with SafetensorsFile(write(raw({"__metadata__": {"format": "pt"}, "w": tensor()}, bytes(24)))) as file:
        assert file.metadata == {"format": "pt"}
        assert list(file.keys()) == ["w"]
        assert isinstance(file, WeightSource)
        assert file.origin("w") == file.path


def test_arrays_are_read_only_views_and_outlive_the_file(write: Callable[[bytes], str]) -> None:
    data = np.arange(6, dtype=np.float32).tobytes()
    file = SafetensorsFile(write(raw({"w": tensor()}, data)))
    first, second = file.read("w"), file.read_rows("w", 1, 2)
    assert np.shares_memory(first, second)
    assert not first.flags.writeable
    assert not first.flags.owndata
    with pytest.raises(ValueError, match="read-only"):
        first[0, 0] = 1
    file.close()
    file.close()
    assert first.sum() == 15
    with pytest.raises(CheckpointError, match="closed checkpoint"):
        file.read("w")


def test_no_descriptor_is_left_open(write: Callable[[bytes], str]) -> None:
    path = write(raw({"w": tensor()}, bytes(24)))
    damaged = path + ".damaged"
    Path(damaged).write_bytes(b"damaged")

    def mapped_files() -> int:
        return len(os.listdir("/proc/self/fd"))

    before = mapped_files()
    for _ in range(5):
        with SafetensorsFile(path) as file:
            file.read("w")
        with pytest.raises(CheckpointError, match="truncated"):
            SafetensorsFile(damaged)
    assert mapped_files() == before


def test_replaced_file_is_refused(write: Callable[[bytes], str], tmp_path: Path) -> None:
    path = write(raw({"w": tensor()}, bytes(24)))
    file = SafetensorsFile(path)
    (tmp_path / "new").write_bytes(raw({"w": tensor("U8", [2], [0, 2])}, bytes(2)))
    os.replace(tmp_path / "new", path)
    with pytest.raises(CheckpointError, match="changed since its header was read"):
        file.read("w")


def test_unaligned_data_is_read(write: Callable[[bytes], str]) -> None:
    values = np.array([1.5, -2, np.inf], np.float64)
    header = {"b": tensor("U8", [1], [0, 1]), "w": tensor("F64", [3], [1, 25])}
    with SafetensorsFile(write(raw(header, b"\7" + values.tobytes()))) as file:
        assert file.read("w").tolist() == values.tolist()
        assert file.read_rows("w", 2, 3).tolist() == [np.inf]


SHAPES = st.lists(st.integers(0, 5), max_size=4).map(tuple)
SPECS = st.dictionaries(
    st.text(max_size=8).filter(lambda key: key != "__metadata__"),
    st.tuples(SHAPES, st.sampled_from(DTYPES)),
    max_size=5,
)


@settings(max_examples=80, deadline=None)
@given(SPECS, st.integers(0, 2**32 - 1))
def test_every_bit_equals_what_the_library_wrote(tmp_path_factory: pytest.TempPathFactory, specs, seed) -> None:
    generator = np.random.default_rng(seed)
    arrays = {}
    for key, (shape, dtype) in specs.items():
        count = int(np.prod(shape, dtype=np.int64))
        bits = generator.bytes(count * dtype.itemsize)  # every bit pattern: NaN payloads too
        arrays[key] = np.frombuffer(bits, dtype.numpy).reshape(shape)
        if dtype.name == "bool":
            arrays[key] = generator.integers(0, 2, shape).astype(bool)
    path = tmp_path_factory.getbasetemp() / "library.safetensors"
    path.unlink(missing_ok=True)
    path.write_bytes(safetensors.numpy.save(arrays))
    with SafetensorsFile(path) as file:
        assert set(file.keys()) == set(arrays)
        for key, array in arrays.items():
            spec, value = file.spec(key), file.read(key)
            assert (spec.shape, spec.dtype.numpy) == (array.shape, array.dtype)
            assert (value.shape, value.dtype, value.tobytes()) == (array.shape, array.dtype, array.tobytes())
            rows = array.shape[0] if array.ndim else 1
            middle = rows // 2
            parts = file.read_rows(key, 0, middle).tobytes(), file.read_rows(key, middle, rows).tobytes()
            assert b"".join(parts) == array.tobytes()


def _sample() -> bytes:
    return safetensors.numpy.save(
        {
            "model.norm.weight": np.arange(5, dtype=np.float32),
            "w": np.ones((2, 3), ml_dtypes.bfloat16),
            "scalar": np.array(3, np.int64),
            "empty": np.zeros((0, 4), np.float16),
        },
        metadata={"format": "np"},
    )


@settings(max_examples=600, deadline=None)
@given(st.data())
def test_mutated_files_are_read_or_refused(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    content = bytearray(_sample())
    header = 8 + int.from_bytes(content[:8], "little")
    for _ in range(data.draw(st.integers(1, 4))):
        where = data.draw(st.integers(0, header - 1))
        kind = data.draw(st.sampled_from(["set", "cut", "insert", "digit"]))
        if kind == "set":
            content[where % len(content)] = data.draw(st.integers(0, 255))
        elif kind == "digit":
            content[where % len(content)] = data.draw(st.sampled_from(b'0123456789-."{}[],: '))
        elif kind == "insert":
            content[where:where] = data.draw(st.binary(min_size=1, max_size=3))
        else:
            del content[where : where + data.draw(st.integers(1, 3))]
        if not content:
            return
    path = tmp_path_factory.getbasetemp() / "mutated.safetensors"
    path.unlink(missing_ok=True)
    path.write_bytes(content)
    try:
        with SafetensorsFile(path) as file:
            value = {key: file.read(key) for key in list(file.keys())}
    except CheckpointError:
        return
    # What we accept, the reference reader accepts too, and it finds the same bytes.
    expected = dict(safetensors.deserialize(bytes(content)))
    assert {key: array.tobytes() for key, array in value.items()} == {
        key: bytes(fields["data"]) for key, fields in expected.items()
    }
