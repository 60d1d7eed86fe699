"""Parts of an archive: exactly those are read that are asked for."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lang_core import CheckpointError, MappingWeights, Parts, TensorSpec, part_of
from run_iree.archive import ArchiveEntry, ArchiveWeights, write_archive
from run_iree.archive._parts import read_part

_COUNTERS = Path("/proc/self/io")


@st.composite
def _cut(draw: st.DrawFn) -> tuple[tuple[int, ...], tuple[slice, ...]]:
    shape = tuple(draw(st.lists(st.integers(0, 5), max_size=4)))
    bounds = [sorted((draw(st.integers(0, size)), draw(st.integers(0, size)))) for size in shape]
    parts = [draw(st.sampled_from([slice(*pair), slice(None)])) for pair in bounds]
    return shape, tuple(parts)


@given(cut=_cut(), offset=st.integers(0, 9000))
def test_a_part_is_numpys(
    tmp_path_factory: pytest.TempPathFactory, cut: tuple[tuple[int, ...], tuple[slice, ...]], offset: int
) -> None:
    shape, part = cut
    whole = np.arange(np.prod(shape, dtype=int), dtype=np.int32).reshape(shape)
    path = tmp_path_factory.mktemp("part") / "file"
    path.write_bytes(bytes(4 * (offset % 17)) + whole.tobytes())
    with path.open("rb") as file:
        array = read_part(file.fileno(), 4 * (offset % 17), TensorSpec(shape, "i32"), part)
    np.testing.assert_array_equal(array, whole[part])
    assert array.dtype == np.int32


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    arrays = {
        name: np.arange(768 * 512, dtype=np.float32).reshape(768, 512) + number for number, name in enumerate("ab")
    }
    source, path = MappingWeights(arrays), tmp_path_factory.mktemp("archive") / "w.irpa"
    write_archive(path, [ArchiveEntry(name, name, source.spec(name)) for name in arrays], source)
    return path


def _resident(path: Path) -> int:
    """Bytes of the file's maps that this process has touched."""
    total, counted = 0, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        name, *rest = line.split()
        if not name.endswith(":"):
            counted = line.endswith(str(path))
        elif counted and name == "Rss:":
            total += 1024 * int(rest[0])
    return total


def test_pages_of_other_parts_are_not_touched(archive: Path) -> None:
    with ArchiveWeights(archive) as weights:
        assert isinstance(weights, Parts)
        before = _resident(archive)
        parts = [weights.read_part(name, (slice(0, 384), slice(None))) for name in "ab"]
        assert [part.sum() > 0 for part in parts] == [True, True]
        expected = 2 * 384 * 512 * 4
        assert weights.part_bytes == expected
        assert expected <= _resident(archive) - before <= expected + 4 * 4096  # first and last pages are shared
        np.testing.assert_array_equal(parts[1], np.arange(384 * 512, dtype=np.float32).reshape(384, 512) + 1)


@pytest.mark.skipif(not _COUNTERS.exists(), reason="the system does not count what a process reads")
def test_bytes_between_the_pieces_of_a_part_are_not_read(archive: Path) -> None:
    def read() -> int:
        return int(_COUNTERS.read_text().split()[1])

    with ArchiveWeights(archive) as weights:
        touched, counted = _resident(archive), read()
        own = read() - counted  # of looking
        part = weights.read_part("b", (slice(None), slice(128, 256)))
        assert read() - counted - 2 * own == part.nbytes == 768 * 128 * 4
        assert _resident(archive) == touched
    np.testing.assert_array_equal(part, (np.arange(768 * 512, dtype=np.float32).reshape(768, 512) + 1)[:, 128:256])


def test_an_archive_that_was_cut_is_refused(archive: Path, tmp_path: Path) -> None:
    copy = tmp_path / "cut.irpa"
    copy.write_bytes(archive.read_bytes())
    with ArchiveWeights(copy) as weights:
        copy.write_bytes(archive.read_bytes()[:-800_000])
        with pytest.raises(CheckpointError, match=r"cut.irpa: cannot read 'b' \(the file ends at byte \d+\): export"):
            weights.read_part("b", (slice(None), slice(0, 128)))


def test_of_other_sources_rows_are_read() -> None:
    source = MappingWeights({"a": np.arange(24).reshape(4, 3, 2).astype(np.int32), "s": np.array(3, np.int32)})
    assert not isinstance(source, Parts)
    part = part_of(source, "a", (slice(1, 3), slice(None), slice(1, 2)))
    assert part.tolist() == [[[7], [9], [11]], [[13], [15], [17]]]
    assert part_of(source, "s", ()).tolist() == 3
