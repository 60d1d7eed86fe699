import mmap
import re
from pathlib import Path

import numpy as np
import pytest
from iree import runtime

from run_iree._device_testing import STEP, archive, compiled
from run_iree.sessions._parameters import ask_for_large_pages
from run_iree.sessions._session import Session


def _advised(path: Path) -> list[bool]:
    """Returns, per mapping of the file in this process, whether large pages were asked for."""
    maps = re.split(r"^(?=[0-9a-f]+-[0-9a-f]+ )", Path("/proc/self/smaps").read_text(), flags=re.MULTILINE)
    flags = (re.search(r"^VmFlags:(.*)$", mapping, re.MULTILINE) for mapping in maps if str(path) in mapping)
    return [bool(match and "hg" in match[1].split()) for match in flags]


def _loaded(path: Path) -> runtime.ParameterIndex:
    index = runtime.ParameterIndex()
    index.load(str(path))
    return index


_SKIPPED = pytest.mark.skipif(
    not hasattr(mmap, "MADV_HUGEPAGE") or not Path("/sys/kernel/mm/transparent_hugepage").is_dir(),
    reason="this system has no large pages to ask for",
)


@_SKIPPED
def test_the_mapping_is_advised(tmp_path: Path) -> None:
    arrays = {f"w{rows}": np.ones((rows, 501), np.float32) for rows in (701, 3, 1303)}
    path = archive(tmp_path, arrays)
    index = _loaded(path)
    assert _advised(path) == [False]
    ask_for_large_pages(index)
    assert _advised(path)[-1]
    for key, entry in index.items():
        np.testing.assert_array_equal(np.frombuffer(entry.file_view, np.float32), arrays[key].ravel())


@_SKIPPED
def test_a_session_asks(tmp_path: Path) -> None:
    path = archive(tmp_path, {"w": np.ones((4, 3), np.float32)})
    with Session(compiled(STEP, "local-sync", tmp_path), "local-sync", parameters=path):
        assert any(_advised(path))


@pytest.mark.parametrize("arrays", [{}, {"none": np.zeros((0, 3), np.float32)}, {"one": np.ones((), np.int8)}])
def test_archives_of_next_to_nothing(tmp_path: Path, arrays: dict[str, np.ndarray]) -> None:
    index = _loaded(archive(tmp_path, arrays))
    ask_for_large_pages(index)
    assert sorted(key for key, _ in index.items()) == sorted(arrays)
