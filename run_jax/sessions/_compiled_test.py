"""Memory that compiling leaves is given back."""

import ctypes
from pathlib import Path
from typing import Final

import pytest

from run_jax.sessions._compiled import give_back_memory

_STATUS: Final = Path("/proc/self/status")
_BLOCK: Final = 60_000  # bytes: small enough to come from the heap, which does not shrink by itself
_BLOCKS: Final = 1000


def _anonymous_bytes() -> int:
    (line,) = [line for line in _STATUS.read_text().splitlines() if line.startswith("RssAnon:")]
    return 1024 * int(line.split()[1])


@pytest.mark.skipif(
    not _STATUS.exists() or not hasattr(ctypes.CDLL(None), "malloc_trim"), reason="only glibc gives memory back"
)
def test_freed_memory_goes_back_to_the_system() -> None:
    blocks = [b"x" * _BLOCK for _ in range(_BLOCKS)]
    last = b"y" * _BLOCK  # lies behind them, so that the heap cannot end before it
    before = _anonymous_bytes()
    blocks.clear()
    give_back_memory()
    assert before - _anonymous_bytes() > _BLOCK * _BLOCKS // 2
    assert last[0] == ord("y")


def test_elsewhere_nothing_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda _: object())
    give_back_memory()
