import mmap
import os
import subprocess
import sys
from pathlib import Path

from tools.benching.suites._process_memory import Mapped, mapped, mapped_of, peak_rss

_SMAPS = """\
7f00-7f10 r--s 00000000 fd:01 4711                       /some/weights.irpa
Size:               4000 kB
Rss:                 300 kB
Pss:                 150 kB
Pss_Dirty:             7 kB
VmFlags: rd sh mr
7f20-7f30 r--s 00000000 fd:01 4712                       /some/other
Rss:                  11 kB
Pss:                  11 kB
7f40-7f50 r--s 00001000 fd:01 4711                       /some/weights.irpa
Rss:                   5 kB
Pss:                   4 kB
7f60-7f70 rw-p 00000000 00:00 0
Rss:                  13 kB
"""

_TOUCH = """
import mmap, sys
with open(sys.argv[1], "rb") as file:
    map = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
sum(map[at] for at in range(0, len(map), 4096))
print("mapped", flush=True)
sys.stdin.read()
"""


def test_all_mappings_of_the_file_count_and_no_others() -> None:
    assert mapped_of(_SMAPS, 4711) == Mapped(305 * 1024, 154 * 1024)
    assert mapped_of(_SMAPS, 4713) == Mapped(0, 0)


def test_two_processes_share_the_pages_of_a_file(tmp_path: Path) -> None:
    path, size = tmp_path / "file", 40 * mmap.PAGESIZE
    path.write_bytes(b"x" * size)
    command = [sys.executable, "-c", _TOUCH, str(path)]
    with (
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as one,
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other,
    ):
        for process in (one, other):
            assert process.stdout is not None
            assert process.stdout.readline() == b"mapped\n"
        maps = [mapped(process.pid, path) for process in (one, other)]
        for process in (one, other):
            assert process.stdin is not None
            process.stdin.close()
    assert maps == [Mapped(size, size // 2)] * 2


def test_the_peak_is_at_least_what_is_there() -> None:
    assert peak_rss(os.getpid()) > 2**20
