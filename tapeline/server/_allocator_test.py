import ctypes
import json
import os
import platform
import subprocess
import sys

import pytest

from tapeline.server._allocator import _VARIABLES, bound_free_memory

_GLIBC = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc has arenas")
_THREADS = 6
# Threads that have memory at once, each in an arena if there are enough; then blocks of features of sound.
_CHILD = f"""
import ctypes, json, sys, threading
from tapeline.server._allocator import bound_free_memory

print(bound_free_memory() if "bound" in sys.argv else False)
library = ctypes.CDLL(None)
library.malloc.restype = ctypes.c_void_p
library.free.argtypes = [ctypes.c_void_p]
library.fopen.restype = ctypes.c_void_p
library.fclose.argtypes = [ctypes.c_void_p]
library.malloc_info.argtypes = [ctypes.c_int, ctypes.c_void_p]
together = threading.Barrier({_THREADS})

def work():
    block = library.malloc(1000)
    together.wait()
    library.free(block)
    for size in (13 << 20, 8 << 20):
        library.free(library.malloc(size))
    together.wait()

threads = [threading.Thread(target=work) for _ in range({_THREADS})]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
report = library.fopen(sys.argv[1].encode(), b"w")
library.malloc_info(0, report)
library.fclose(report)
"""


def _heaps(report: str, *arguments: str, **environment: str) -> tuple[bool, int, int]:
    """Returns whether a child bounded its memory, its number of arenas, and the bytes that they have taken."""
    clean = {name: value for name, value in os.environ.items() if name not in (*_VARIABLES.values(), "GLIBC_TUNABLES")}
    paths = {"PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", _CHILD, report, *arguments]
    bound = subprocess.run(command, env={**clean, **paths, **environment}, check=True, capture_output=True, text=True)
    with open(report) as file:
        lines = file.read().splitlines()
    taken = [line for line in lines if line.startswith('<system type="current"')]
    return (
        json.loads(bound.stdout.lower()),
        sum(line.startswith("<heap ") for line in lines),
        int(taken[-1].split('"')[3]),
    )


@_GLIBC
def test_threads_share_two_arenas_which_keep_no_large_blocks(tmp_path: "os.PathLike[str]") -> None:
    report = os.path.join(tmp_path, "report")
    bound, arenas, kept = _heaps(report, "bound")
    assert bound
    assert arenas <= 2
    _, free_arenas, free_kept = _heaps(report)
    assert free_arenas > arenas, "the threads of this test do not need arenas: it shows nothing"
    assert free_kept > kept


@_GLIBC
@pytest.mark.parametrize("variable", [*_VARIABLES.values(), "GLIBC_TUNABLES"])
def test_settings_of_the_environment_stay(variable: str) -> None:
    assert not bound_free_memory({variable: "3"})


def test_other_c_libraries_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "libc_ver", lambda: ("", ""))
    monkeypatch.setattr(ctypes, "CDLL", lambda name: pytest.fail(f"{name}: no call is expected"))
    assert not bound_free_memory({})
