import errno
import hashlib
import os
import threading
from pathlib import Path

import pytest

from run_iree.archive._hashing import FollowingHash


def _hash_of(path: Path) -> str:
    following = FollowingHash(os.open(path, os.O_RDONLY), str(path))
    following.advance(path.stat().st_size)
    following.finish()
    return following.hexdigest()


@pytest.mark.parametrize(("before", "after"), [(0, 5), (3, 5), (5, 5), (11, 11), (19, 19)])
def test_the_thread_is_nicer_than_the_writer_but_never_less_nice_than_before(
    before: int, after: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The system refuses a user's process to become less nice; root's tests would not notice."""
    if os.getpriority(os.PRIO_PROCESS, 0) > before:
        after = max(after, os.getpriority(os.PRIO_PROCESS, 0))
    path, digests, asked = tmp_path / "file", list[str](), list[int]()
    path.write_bytes(b"seven" * 77)
    real = os.setpriority

    def refusing(which: int, who: int, nice: int) -> None:
        if nice < os.getpriority(which, who):
            raise PermissionError(errno.EACCES, "Permission denied")
        asked.append(nice)
        real(which, who, nice)

    def write() -> None:
        mine = threading.get_native_id()
        real(os.PRIO_PROCESS, mine, max(before, os.getpriority(os.PRIO_PROCESS, mine)))
        monkeypatch.setattr(os, "setpriority", refusing)
        digests.append(_hash_of(path))

    writer = threading.Thread(target=write)  # what it starts is as nice as it is
    writer.start()
    writer.join()
    assert (digests, asked) == ([hashlib.sha256(b"seven" * 77).hexdigest()], [after])
