"""Manifests and payloads, written and read back."""

import doctest
import json
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import runtime.dump as package
from lang_core import DTYPES, DType, InputError, TensorSpec, bf16
from runtime.dump import MANIFEST, DumpLimits, DumpWriter, TensorLabel, read_dump
from runtime.dump import _writer as writer_module
from runtime.dump._writer import PARTIAL


def label(name: str = "x", **changes: Any) -> TensorLabel:
    fields = {"step": 0, "entry_point": "main", "direction": "IN", "when": "before"}
    return TensorLabel(name=name, **(fields | changes))


def tag(name: str, **changes: Any) -> TensorLabel:
    return label(name, direction="TAG", when="during", **({"iteration": 0} | changes))


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "dump"


def written(directory: Path, *arrays: np.ndarray, limits: DumpLimits | None = None, payload: bool = True) -> None:
    with DumpWriter(directory, level=2, source={"context": "eager"}, tags=["*"], limits=limits) as writer:
        for number, array in enumerate(arrays):
            writer.add(label(f"x{number}"), array, payload=payload)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(), (3, 5), (2, 0, 3)])
def test_payloads_of_every_dtype_come_back_bit_by_bit(directory: Path, dtype: DType, shape: tuple[int, ...]) -> None:
    bits = np.random.default_rng(2).integers(0, 256, (*shape, dtype.itemsize), np.uint8)
    array = (bits % 2 if dtype.name == "bool" else bits).view(dtype.numpy)[..., 0]
    written(directory, array)
    dump = read_dump(directory)
    (record,) = dump.records
    loaded = dump.load(record)
    assert (record.spec, loaded.dtype) == (TensorSpec(shape, dtype), dtype.numpy)
    np.testing.assert_array_equal(
        loaded.view(np.uint8) if shape else loaded.tobytes(), array.view(np.uint8) if shape else array.tobytes()
    )
    assert record.file is not None
    plain = np.load(directory / record.file)  # without our code
    np.testing.assert_array_equal(plain.view(array.dtype) if dtype is bf16 else plain, array)
    assert plain.dtype == (np.uint16 if dtype is bf16 else dtype.numpy)


def test_a_record_has_all_that_was_said_of_the_tensor(directory: Path) -> None:
    with DumpWriter(directory, level=3, source={"context": "device", "device": "vmvx"}, tags=["layers.*"]) as writer:
        added = writer.add(
            tag("layers.2.mlp/out", step=7, iteration=4, module_path="layers.2.mlp", op="add", line="a/b.py:3"),
            np.array([[1, np.nan, -3]], np.float32),
            payload=True,
        )
    dump = read_dump(directory)
    assert dump.records == [added]
    assert dump.source == {"context": "device", "device": "vmvx"}
    assert (dump.level, dump.tags, dump.complete, dump.error) == (3, ["layers.*"], True, None)
    assert json.loads((directory / MANIFEST).read_text())["records"] == [
        {
            "index": 0, "step": 7, "entry_point": "main", "name": "layers.2.mlp/out", "direction": "TAG",
            "when": "during", "iteration": 4, "module_path": "layers.2.mlp", "op": "add", "line": "a/b.py:3",
            "kernel": None, "call_site": None, "layer": None,
            "dtype": "f32", "shape": [1, 3], "bytes": 12, "min": -3.0, "max": 1.0, "mean": -1.0, "nan": 1, "inf": 0,
            "file": "step000007/000000.layers.2.mlp_out.npy", "dropped": None,
        }
    ]  # fmt: skip


def test_a_manifest_of_an_earlier_version_is_read(directory: Path) -> None:
    """Tensors of kernels and the agreement of modules were added."""
    written(directory, np.ones(3, np.float32))
    manifest = json.loads((directory / MANIFEST).read_text())
    del manifest["agreement"]
    for record in manifest["records"]:
        for name in ("kernel", "call_site", "layer"):
            del record[name]
    newer = read_dump(directory)
    (directory / MANIFEST).write_text(json.dumps(manifest))
    assert read_dump(directory) == newer
    assert (newer.agreement, newer.records[0].kernel) == ([], None)


def test_the_example() -> None:
    result = doctest.testmod(package)
    assert (bool(result.attempted), result.failed) == (True, 0)


def test_an_array_of_any_strides(directory: Path) -> None:
    array = np.arange(60, dtype=np.int32).reshape(3, 4, 5)[::2, :, ::-1].T
    written(directory, array)
    dump = read_dump(directory)
    np.testing.assert_array_equal(dump.load(dump.records[0]), array)


def test_figures_alone(directory: Path) -> None:
    written(directory, np.ones((2, 3), np.float32), payload=False)
    dump = read_dump(directory)
    assert (dump.records[0].file, dump.records[0].dropped, dump.records[0].mean) == (None, None, 1)
    assert [path.name for path in directory.iterdir()] == [MANIFEST]
    with pytest.raises(InputError, match=r"record 0 \('x0', step 0\) has figures only, no elements: dump it with"):
        dump.load(dump.records[0])


def test_limits_drop_payloads_and_count_them(directory: Path) -> None:
    arrays = [np.zeros(n, np.uint8) for n in (30, 50, 20, 21, 10)]
    written(directory, *arrays, limits=DumpLimits(tensor_bytes=40, total_bytes=60))
    dump = read_dump(directory)
    assert [record.dropped for record in dump.records] == [None, "tensor_limit", None, "total_limit", None]
    assert [record.max for record in dump.records] == [0] * 5
    assert dump.totals == {
        "records": 5,
        "payloads": 3,
        "payload_bytes": 60,
        "dropped": {"tensor_limit": {"count": 1, "bytes": 50}, "total_limit": {"count": 1, "bytes": 21}},
    }
    assert dump.limits == {"tensor_bytes": 40, "total_bytes": 60}
    with pytest.raises(InputError, match=r"record 1 .* dropped by the tensor_limit: dump with a higher `dump_limit`"):
        dump.load(dump.records[1])


def test_the_totals_are_said_in_one_line(directory: Path) -> None:
    with DumpWriter(directory, level=2, source={}, limits=DumpLimits(tensor_bytes=2)) as writer:
        writer.add(label("a"), np.zeros(3, np.uint8), payload=True)
        writer.add(label("b"), np.zeros(2, np.uint8), payload=True)
    assert writer.totals.text() == (
        "2 tensors, 1 payloads of 2 bytes; 1 payloads of 3 bytes dropped by the tensor limit"
    )


def test_an_exception_ends_a_dump_that_can_be_read(directory: Path) -> None:
    def dump_and_fail() -> None:
        with DumpWriter(directory, level=2, source={}) as writer:
            writer.add(label(), np.zeros(3), payload=True)
            raise KeyError("lost")

    with pytest.raises(KeyError, match="lost"):
        dump_and_fail()
    dump = read_dump(directory)
    assert (dump.complete, dump.error, len(dump.records)) == (False, "KeyError: 'lost'", 1)


def test_an_exception_before_the_first_tensor_leaves_nothing(directory: Path) -> None:
    with pytest.raises(KeyError, match="lost"), DumpWriter(directory, level=2, source={}):
        raise KeyError("lost")
    assert not directory.exists()


def test_memory_does_not_grow_with_the_tensor(directory: Path) -> None:
    array = np.zeros((2000, 2000), np.float32)
    tracemalloc.start()
    with DumpWriter(directory, level=2, source={}) as writer:
        writer.add(label("a"), array, payload=True)
        writer.add(label("b"), array.T, payload=True)
        writer.add(label("c"), array, payload=False)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < array.nbytes // 8


def test_a_directory_that_holds_something_is_refused(directory: Path) -> None:
    directory.mkdir()
    (directory / "notes.txt").touch()
    with pytest.raises(InputError, match=r"dump=.*dump: the directory is not empty: choose another, or empty it"):
        DumpWriter(directory, level=1, source={})
    file = directory / "notes.txt"
    with pytest.raises(InputError, match=r"dump=.*notes.txt: cannot be written: File exists: choose another"):
        DumpWriter(file, level=1, source={})


def test_a_full_disk(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path, array: np.ndarray) -> None:
        path.write_bytes(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(writer_module, "write_payload", full)
    with pytest.raises(InputError, match=r"dump=.*: cannot be written: No space left on device: choose another"):
        written(directory, np.zeros(3))
    assert not directory.exists()


@pytest.fixture
def dumped(directory: Path) -> Path:
    written(directory, np.arange(6, dtype=np.float32).reshape(2, 3))
    return directory


def edit(directory: Path, **changes: Any) -> None:
    path = directory / MANIFEST
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def edit_record(directory: Path, **changes: Any) -> None:
    record = json.loads((directory / MANIFEST).read_text())["records"][0] | changes
    edit(directory, records=[{key: value for key, value in record.items() if value != "gone"}])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"schema": 2}, "schema 2, this version reads schema 1"),
        ({"level": "2"}, "level is '2': the manifest is damaged; dump again"),
        ({"records": None}, "records is None: the manifest is damaged"),
        ({"records": [5]}, "record 0: expected an object, found int: the manifest is damaged"),
        ({"records": []}, "0 records, its totals say 1: the manifest is damaged"),
        ({"totals": {}}, "1 records, its totals say None"),
    ],
)
def test_a_damaged_manifest(dumped: Path, changes: dict[str, Any], message: str) -> None:
    edit(dumped, **changes)
    with pytest.raises(InputError, match=message):
        read_dump(dumped)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"shape": "gone"}, "record 0: shape missing: the manifest is damaged; dump again"),
        ({"colour": 1}, "record 0: unknown 'colour'"),
        ({"nan": "1"}, "record 0: nan is '1'"),
        ({"step": True}, "record 0: step is True"),
        ({"direction": "UP"}, "record 0: direction is 'UP', expected one of"),
        ({"dtype": "f33"}, "record 0: dtype and shape: unknown dtype 'f33'"),
        ({"shape": [2, None]}, "record 0: dtype and shape: "),
        ({"shape": [2, 4]}, r"record 0: f32\[2,4\] has 32 bytes, found 24"),
        ({"index": 3}, "record 0 says it is 3"),
        ({"file": "../x.npy"}, r"file is '\.\./x\.npy', which is outside of the dump"),
    ],
)
def test_a_damaged_record(dumped: Path, changes: dict[str, Any], message: str) -> None:
    edit_record(dumped, **changes)
    with pytest.raises(InputError, match=message):
        read_dump(dumped)


def test_the_same_tensor_twice(dumped: Path) -> None:
    record = json.loads((dumped / MANIFEST).read_text())["records"][0]
    edit(dumped, records=[record, record | {"index": 1}], totals={"records": 2})
    with pytest.raises(InputError, match=r"records 0 and 1 are the same tensor, \(0, 'main', 'x0', 'before', None\)"):
        read_dump(dumped)


def test_no_manifest_half_of_one_and_an_unfinished_dump(dumped: Path) -> None:
    path = dumped / MANIFEST
    path.write_text(path.read_text()[:100])
    with pytest.raises(InputError, match=r"manifest\.json: cannot be read .*: the manifest is damaged; dump again"):
        read_dump(dumped)
    path.rename(dumped / PARTIAL)
    with pytest.raises(InputError, match="the dump was never finished: its program was killed; dump again"):
        read_dump(dumped)
    (dumped / PARTIAL).unlink()
    with pytest.raises(InputError, match=r"is not a dump: it has no manifest\.json: make one with `dump`"):
        read_dump(dumped)


def payload(directory: Path) -> Path:
    return next(directory.glob("step*/*.npy"))


def test_payloads_that_are_missing_cut_off_or_another(dumped: Path) -> None:
    dump = read_dump(dumped)
    (record,) = dump.records
    path = payload(dumped)
    whole = path.read_bytes()
    path.write_bytes(whole[:-4])
    with pytest.raises(InputError, match=r"x0\.before\.npy holds 20 bytes of elements, f32\[2,3\] has 24: the dump is"):
        dump.load(record)
    path.write_bytes(whole[:20])
    with pytest.raises(InputError, match=r"its payload step000000/000000\.x0\.before\.npy cannot be read: "):
        dump.load(record)
    path.write_bytes(b"")
    with pytest.raises(InputError, match="cannot be read: "):
        dump.load(record)
    with path.open("wb") as file:
        np.save(file, np.zeros((3, 2), np.float32))
    with pytest.raises(InputError, match=r"holds float32\[3, 2\], the manifest says f32\[2,3\]: the dump is damaged"):
        dump.load(record)
    path.unlink()
    with pytest.raises(InputError, match=r"its payload step000000/.*\.npy is missing: the dump is damaged; dump again"):
        dump.load(record)
