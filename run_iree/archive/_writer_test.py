import hashlib
import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lang_core import DTYPES, CheckpointError, InputError, TensorSpec, as_dtype
from run_iree.archive._archive_testing import ARRAYS, BF16, Arrays, loaded_by_iree, same
from run_iree.archive._layout import ArchiveEntry, archive_layout
from run_iree.archive._reader import read_archive_index
from run_iree.archive._values import NonFinite
from run_iree.archive._weights import ArchiveWeights
from run_iree.archive._writer import write_archive


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
