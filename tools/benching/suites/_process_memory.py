"""Reads what another process holds in memory, as Linux counts it."""

from dataclasses import dataclass
from pathlib import Path

_KIB = 1024


@dataclass(frozen=True, slots=True)
class Mapped:
    """A process's mappings of a file, in bytes.

    Attributes:
        resident: of its pages, those that are in memory.
        proportional: the same, each page counted by its share among the processes that have mapped it.
    """

    resident: int
    proportional: int


def peak_rss(pid: int) -> int:
    """The high-water mark of resident bytes (VmHWM)."""
    with open(f"/proc/{pid}/status") as status:
        return next(int(line.split()[1]) * _KIB for line in status if line.startswith("VmHWM:"))


def mapped(pid: int, path: Path) -> Mapped:
    """Returns how much of a file a process has mapped and in memory."""
    return mapped_of(Path(f"/proc/{pid}/smaps").read_text(), path.stat().st_ino)


def mapped_of(smaps: str, inode: int) -> Mapped:
    """The mappings of an inode in the text of a ``/proc/PID/smaps``."""
    sums, mine = {"Rss:": 0, "Pss:": 0}, False
    for line in smaps.splitlines():
        words = line.split()
        if not words[0].endswith(":"):  # addresses, permissions, offset, device, inode, path
            mine = words[4] == str(inode)
        elif mine and words[0] in sums:
            sums[words[0]] += int(words[1]) * _KIB
    return Mapped(sums["Rss:"], sums["Pss:"])
