"""Output of ranks: one stdout, and lines of stderr with the rank that wrote them."""

import os
import sys
import threading
from typing import IO, Final

from lang_core import checked_choices

_CHUNK: Final = 1 << 16


class PrefixedLines(threading.Thread):
    """Thread that copies lines and puts a rank before each; a line that is drawn again and again is one each time.

    Args:
        source: output of the rank.
        rank: its number.
    """

    def __init__(self, source: IO[bytes], rank: int) -> None:
        super().__init__(name=f"stderr of rank {rank}", daemon=True)
        self._source: Final = source
        self._prefix: Final = f"[{rank}] ".encode()

    def run(self) -> None:
        """Copies until the rank has ended."""
        rest = b""
        while chunk := os.read(self._source.fileno(), _CHUNK):
            *lines, rest = (rest + chunk).replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
            self._write(lines)
        self._write([rest] if rest else [])
        self._source.close()

    def _write(self, lines: list[bytes]) -> None:
        text = b"".join(self._prefix + line + b"\n" for line in lines if line)
        sys.stderr.write(text.decode(errors="replace"))
        sys.stderr.flush()


@checked_choices
def stdout_is_ours(*, wanted: bool) -> None:
    """Separates the output of libraries on stdout (gloo's) from this program's.

    Args:
        wanted: whether the program's own output goes to stdout; else it goes to stderr as well.
    """
    sys.stdout.flush()
    if wanted:
        sys.stdout = os.fdopen(os.dup(1), "w", encoding=sys.stdout.encoding, errors=sys.stdout.errors)
    os.dup2(2, 1)
