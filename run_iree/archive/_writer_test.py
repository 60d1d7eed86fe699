import errno
import gc
import hashlib
import os
import shutil
from collections.abc import Mapping
from pathlib import Path

import iree.runtime as rt
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lang_core import DTYPES, CheckpointError, InputError, MappingWeights, TensorSpec, as_dtype, rows_of
from run_iree.archive import _output, _pieces, _units
from run_iree.archive._layout import ArchiveEntry, archive_layout
from run_iree.archive._reader import read_archive_index
from run_iree.archive._values import NonFinite
from run_iree.archive._weights import ArchiveWeights
from run_iree.archive._writer import write_archive

BF16 = ml_dtypes.bfloat16


class Arrays(MappingWeights):
    """Remembers how much was asked for at once."""

    def __init__(self, arrays: Mapping[str, np.ndarray]) -> None:
        super().__init__(arrays, "arrays.safetensors")
        self.arrays = arrays
        self.most_bytes = 0

    def read(self, key: str) -> np.ndarray:
        raise AssertionError("the whole tensor was read")

    def read_rows(self, key: str, start: int, stop: int) -> np.ndarray:
        rows = rows_of(self.arrays[key], start, stop, key, "arrays.safetensors")
        self.most_bytes = max(self.most_bytes, rows.nbytes)
        return rows


def same(arrays: Mapping[str, np.ndarray]) -> list[ArchiveEntry]:
    return [ArchiveEntry(f"p.{key}", key, Arrays(arrays).spec(key)) for key in arrays]


def loaded_by_iree(path: str | os.PathLike[str]) -> dict[str, bytes]:
    """Returns the bytes of each parameter; no object of IREE is alive afterwards."""
    index = rt.ParameterIndex()
    index.load(os.fspath(path))
    data = {key: bytes(memoryview(entry.file_view)) for key, entry in index.items()}
    del index
    gc.collect()
    return data


def open_below(directory: Path) -> list[str]:
    """The open files of this process in a directory (only there: hashes of earlier tests may still be running)."""
    links = (f"/proc/self/fd/{name}" for name in os.listdir("/proc/self/fd"))
    return [
        target for link in links if os.path.lexists(link) and (target := os.readlink(link)).startswith(f"{directory}/")
    ]


ARRAYS = {
    "w": np.arange(35, dtype=np.float32).reshape(5, 7),
    "b": np.array([1.5, -2, 3], BF16),
    "scalar": np.array(3, np.int64),
    "empty": np.zeros((0, 4), np.float16),
    "flag": np.array([True, False, True]),
}


def test_iree_reads_what_was_written(tmp_path: Path) -> None:
    path = tmp_path / "weights.irpa"
    written = write_archive(path, same(ARRAYS), Arrays(ARRAYS))
    assert loaded_by_iree(path) == {f"p.{key}": array.tobytes() for key, array in ARRAYS.items()}
    content = path.read_bytes()
    assert written.total_bytes == len(content) == archive_layout(same(ARRAYS)).total_bytes
    assert written.sha256 == hashlib.sha256(content).hexdigest()
    assert written.nonfinite == {}
    assert os.listdir(tmp_path) == ["weights.irpa"]


SHAPES = st.lists(st.integers(0, 6), max_size=4).map(tuple)
TENSORS = st.tuples(SHAPES, st.sampled_from(DTYPES), st.integers(0, 2**32 - 1))


@settings(max_examples=60, deadline=None)
@given(st.dictionaries(st.text(min_size=1, max_size=8), TENSORS, max_size=5), st.integers(1, 200))
def test_every_bit_arrives(tmp_path_factory: pytest.TempPathFactory, tensors, chunk_bytes: int) -> None:
    arrays = {}
    for key, (shape, dtype, seed) in tensors.items():
        generator = np.random.default_rng(seed)
        count = int(np.prod(shape, dtype=np.int64))
        bits = generator.bytes(count * dtype.itemsize)  # every bit pattern: NaN payloads too
        arrays[key] = np.frombuffer(bits, dtype.numpy).reshape(shape)
        if dtype.name == "bool":
            arrays[key] = generator.integers(0, 2, shape).astype(bool)
    path = tmp_path_factory.getbasetemp() / "bits.irpa"
    written = write_archive(path, same(arrays), Arrays(arrays), chunk_bytes=chunk_bytes)
    content = path.read_bytes()
    assert written.sha256 == hashlib.sha256(content).hexdigest()
    records = read_archive_index(path)
    assert list(records) == [f"p.{key}" for key in arrays]
    iree = loaded_by_iree(path)
    for key, array in arrays.items():
        record = records[f"p.{key}"]
        assert content[record.offset : record.offset + record.nbytes] == array.tobytes() == iree[record.name]
        assert (record.spec, record.offset % 64) == (Arrays(arrays).spec(key), 0)
        floating = as_dtype(array.dtype).is_floating
        with np.errstate(invalid="ignore"):  # signalling NaNs are among them
            counts = NonFinite(int(np.isnan(array).sum()), int(np.isinf(array).sum())) if floating else NonFinite()
        assert written.nonfinite.get(record.name, NonFinite()) == counts


@pytest.mark.parametrize("dtype", ["f16", "bf16", "f32", "f64"])
@pytest.mark.parametrize("stored", [np.float16, BF16, np.float32, np.float64])
def test_floating_dtypes_are_converted(tmp_path: Path, stored: type, dtype: str) -> None:
    array = np.random.default_rng(0).standard_normal((300, 7)).astype(stored)
    path = tmp_path / "w.irpa"
    write_archive(path, [ArchiveEntry("w", "w", TensorSpec((300, 7), dtype))], Arrays({"w": array}), chunk_bytes=1000)
    assert loaded_by_iree(path)["w"] == array.astype(as_dtype(dtype).numpy).tobytes()


def test_tied_weights_are_stored_once(tmp_path: Path) -> None:
    spec = TensorSpec((5, 7), "f32")
    entries = [
        ArchiveEntry("embed", "w", spec),
        ArchiveEntry("b", "b", TensorSpec((3,), "bf16")),
        ArchiveEntry("head", "w", spec),
    ]
    written = write_archive(tmp_path / "w.irpa", entries, Arrays(ARRAYS))
    records = read_archive_index(tmp_path / "w.irpa")
    assert records["embed"].offset == records["head"].offset
    assert written.total_bytes == 2 * 4096
    loaded = loaded_by_iree(tmp_path / "w.irpa")
    assert loaded["embed"] == loaded["head"] == ARRAYS["w"].tobytes()


def test_nan_weights_are_reported_under_every_name(tmp_path: Path) -> None:
    array = np.array([1, np.nan, np.inf, -np.inf], np.float32)
    spec = TensorSpec((4,), "f32")
    entries = [
        ArchiveEntry("a", "w", spec),
        ArchiveEntry("b", "w", spec),
        ArchiveEntry("h", "w", TensorSpec((4,), "f16")),
    ]
    written = write_archive(tmp_path / "w.irpa", entries, Arrays({"w": array}))
    assert written.nonfinite == dict.fromkeys("abh", NonFinite(1, 2))


def test_a_value_that_would_become_infinite_is_named(tmp_path: Path) -> None:
    array = np.ones((600_000, 3), np.float32)  # the value lies in the second piece
    array[500_000, 1] = -70000
    message = (
        r"parameter 'p': element \[500000, 1\] of 'w' in arrays.safetensors is -70000, .* infinite as f16: store it"
    )
    with pytest.raises(InputError, match=message):
        write_archive(
            tmp_path / "w.irpa", [ArchiveEntry("p", "w", TensorSpec(array.shape, "f16"))], Arrays({"w": array})
        )
    assert os.listdir(tmp_path) == []


def test_source_must_have_what_is_asked(tmp_path: Path) -> None:
    with pytest.raises(
        CheckpointError, match=r"parameter 'p': 'w' in arrays.safetensors has shape \[5, 7\], expected \[7, 5\]"
    ):
        write_archive(tmp_path / "w.irpa", [ArchiveEntry("p", "w", TensorSpec((7, 5), "f32"))], Arrays(ARRAYS))
    with pytest.raises(InputError, match="is i64, requested is f32: only floating dtypes are converted"):
        write_archive(tmp_path / "w.irpa", [ArchiveEntry("p", "scalar", TensorSpec((), "f32"))], Arrays(ARRAYS))

    class Short(Arrays):
        def read_rows(self, key: str, start: int, stop: int) -> np.ndarray:
            return self.arrays[key][start : stop - 1]

    with pytest.raises(CheckpointError, match=r"'w' gave 28 elements, its shape \[5, 7\] has 35"):
        write_archive(tmp_path / "w.irpa", same({"w": ARRAYS["w"]}), Short(ARRAYS))
    assert os.listdir(tmp_path) == []


def test_progress_ends_at_the_total(tmp_path: Path) -> None:
    calls: list[tuple[int, int]] = []
    written = write_archive(
        tmp_path / "w.irpa", same(ARRAYS), Arrays(ARRAYS), progress=lambda *call: calls.append(call)
    )
    assert calls == sorted(calls)
    assert calls[-1] == (written.total_bytes, written.total_bytes)


def test_rows_are_asked_in_chunks(tmp_path: Path) -> None:
    source = Arrays({"w": np.zeros((1000, 10), np.float32)})
    write_archive(tmp_path / "w.irpa", same(source.arrays), source, chunk_bytes=1024)
    assert source.most_bytes == 25 * 40


def test_places_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is a directory, expected the path of a parameter archive"):
        write_archive(tmp_path, same(ARRAYS), Arrays(ARRAYS))
    with pytest.raises(
        InputError, match=r"absent/w.irpa: cannot write the parameters: No such file .*choose another directory"
    ):
        write_archive(tmp_path / "absent" / "w.irpa", same(ARRAYS), Arrays(ARRAYS))
    with pytest.raises(
        InputError, match=r"cannot write the parameters: File name too long; 8192 bytes are needed, \d+ are"
    ):
        write_archive(tmp_path / ("w" * 250), same(ARRAYS), Arrays(ARRAYS))


def test_a_full_disk_is_seen_before_any_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage(tmp_path)._replace(free=8191)
    monkeypatch.setattr(_output.shutil, "disk_usage", lambda path: usage)
    with pytest.raises(
        InputError, match=r"w.irpa: no space for the parameters: 8192 bytes are needed, 8191 are free there"
    ):
        write_archive(tmp_path / "w.irpa", same(ARRAYS), Arrays(ARRAYS))
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
@pytest.mark.parametrize("call", [0, 1, 4])
def test_failing_write_leaves_the_earlier_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, call: int
) -> None:
    path = tmp_path / "w.irpa"
    path.write_bytes(b"before")
    monkeypatch.setattr(_units, "UNIT_BYTES", 100)
    real, calls = os.write, iter(range(100))

    def failing(descriptor: int, data: memoryview) -> int:
        if next(calls) == call:
            raise OSError(code, os.strerror(code))
        return real(descriptor, data)

    monkeypatch.setattr(_output.os, "write", failing)
    with pytest.raises(InputError, match=rf"w.irpa: cannot write the parameters: {os.strerror(code)}; 8192 bytes are"):
        write_archive(path, same(ARRAYS), Arrays(ARRAYS))
    assert path.read_bytes() == b"before"
    assert os.listdir(tmp_path) == ["w.irpa"]
    assert open_below(tmp_path) == []


def test_interrupt_leaves_nothing(tmp_path: Path) -> None:
    def interrupted(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_archive(tmp_path / "w.irpa", same(ARRAYS), Arrays(ARRAYS), progress=interrupted)
    assert os.listdir(tmp_path) == []


def test_short_writes_are_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.write
    monkeypatch.setattr(_output.os, "write", lambda descriptor, data: real(descriptor, data[:17]))
    monkeypatch.setattr(_units, "UNIT_BYTES", 700)
    written = write_archive(tmp_path / "w.irpa", same(ARRAYS), Arrays(ARRAYS))
    assert loaded_by_iree(tmp_path / "w.irpa")["p.w"] == ARRAYS["w"].tobytes()
    assert written.sha256 == hashlib.sha256((tmp_path / "w.irpa").read_bytes()).hexdigest()


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 9000), st.integers(8, 9000), st.integers(1, 100))
def test_every_write_is_of_whole_units(
    tmp_path_factory: pytest.TempPathFactory, unit: int, piece: int, chunk_bytes: int
) -> None:
    """The system's large pages need that; pieces may be smaller or larger."""
    path = tmp_path_factory.getbasetemp() / "units.irpa"
    write_archive(path, same(ARRAYS), Arrays(ARRAYS))
    wanted, places = path.read_bytes(), list[tuple[int, int]]()
    real = os.write

    def noting(descriptor: int, data: memoryview) -> int:
        places.append((os.lseek(descriptor, 0, os.SEEK_CUR), len(data)))
        return real(descriptor, data)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_output.os, "write", noting)
        patch.setattr(_units, "UNIT_BYTES", unit)
        patch.setattr(_pieces, "_PIECE_BYTES", piece)
        written = write_archive(path, same(ARRAYS), Arrays(ARRAYS), chunk_bytes=chunk_bytes)
    assert path.read_bytes() == wanted
    assert written.sha256 == hashlib.sha256(wanted).hexdigest()
    assert not any(start % unit for start, _ in places)
    assert not any(size % unit for _, size in places[:-1])


def test_no_descriptor_is_left_open(tmp_path: Path) -> None:
    for _ in range(3):
        written = write_archive(tmp_path / "w.irpa", same(ARRAYS), Arrays(ARRAYS))
        assert written.sha256
    assert open_below(tmp_path) == []


def test_memory_is_a_few_pieces(tmp_path: Path) -> None:
    """Peak anonymous memory, of one row of 64 MiB and of a conversion."""
    raw = tmp_path / "raw"
    with open(raw, "wb") as file:
        file.truncate(64 << 20)
    mapped = np.memmap(raw, np.uint16, "r").view(BF16).reshape(1, -1)

    def anonymous() -> int:
        with open("/proc/self/status", encoding="ascii") as file:
            return next(int(line.split()[1]) * 1024 for line in file if line.startswith("RssAnon"))

    levels: list[int] = []
    entries = [
        ArchiveEntry("same", "w", TensorSpec(mapped.shape, "bf16")),
        ArchiveEntry("wide", "w", TensorSpec(mapped.shape, "f32")),
    ]
    before = anonymous()
    write_archive(tmp_path / "w.irpa", entries, Arrays({"w": mapped}), progress=lambda *_: levels.append(anonymous()))
    assert max(levels) - before < 16 << 20


def test_rows_that_are_larger_than_a_chunk_come_in_parts(tmp_path: Path) -> None:
    """Stacked expert matrices, from a source that can read parts of them."""

    class Matrices(Arrays):
        def read_rows(self, key: str, start: int, stop: int) -> np.ndarray:
            raise AssertionError("a whole matrix was read")

        def read_matrix_rows(self, key: str, start: int, stop: int) -> np.ndarray:
            rows = self.arrays[key].reshape(-1, self.arrays[key].shape[-1])[start:stop]
            self.most_bytes = max(self.most_bytes, rows.nbytes)
            return rows

    source = Matrices({"w": np.arange(3 * 50 * 8, dtype=np.float32).reshape(3, 50, 8)})
    path = tmp_path / "w.irpa"
    write_archive(path, same(source.arrays), source, chunk_bytes=70 * 4)
    assert source.most_bytes == 8 * 8 * 4
    with ArchiveWeights(path) as weights:
        np.testing.assert_array_equal(weights.read("p.w"), source.arrays["w"])
