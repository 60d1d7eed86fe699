"""Maps or reads parameter archives, in large pages if Linux has them."""

import ctypes
import mmap
import os
from pathlib import Path
from typing import Final

import numpy as np
from iree import runtime

from lang_core import InputError
from run_iree.devices import IREE_ERRORS, reason

# None if the system does not have this advice.
_LARGE_PAGES: Final[int | None] = getattr(mmap, "MADV_HUGEPAGE", None)


def load_index(path: Path) -> runtime.ParameterIndex:
    """Maps an archive: pages are read when they are first used, and none is copied.

    Raises:
        InputError: the file is missing, truncated, or not an archive.
    """
    if not path.is_file():
        raise InputError(f"cannot load the parameters {str(path)!r}: file not found; export writes weights.irpa")
    index = runtime.ParameterIndex()
    failure = ""
    try:
        index.load(str(path), format=path.suffix.removeprefix(".") or "irpa")
    except IREE_ERRORS as error:
        failure = reason(error)
    if failure:
        raise InputError(_refusal(path, failure))
    ask_for_large_pages(index)
    return index


def read_index(path: Path) -> runtime.ParameterIndex:
    """Reads an archive into memory, safe from later changes of the file.

    An archive above half of the free memory is mapped.

    Raises:
        InputError: the file is missing, truncated, or not an archive.
    """
    if not path.is_file() or path.stat().st_size > _free_memory() // 2:
        return load_index(path)
    index = runtime.ParameterIndex()
    failure = ""
    try:
        with path.open("rb", buffering=0) as file:
            contents = mmap.mmap(-1, max(1, os.fstat(file.fileno()).st_size), mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
            if _LARGE_PAGES is not None:
                contents.madvise(_LARGE_PAGES)
            size, memory = 0, memoryview(contents)
            while count := file.readinto(memory[size:]):
                size += count
        index.load_from_file_handle(runtime.FileHandle.wrap_memory(contents), path.suffix.removeprefix(".") or "irpa")
    except IREE_ERRORS as error:
        failure = reason(error)
    if failure:
        raise InputError(_refusal(path, failure))
    return index


def _free_memory() -> int:
    """Returns the bytes that Linux could give without swapping; 0 on other systems."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable:")), 0)


def _refusal(path: Path, failure: str) -> str:
    return f"cannot load the parameters {str(path)!r}: truncated, or not an archive ({failure}); export again"


def ask_for_large_pages(index: runtime.ParameterIndex) -> None:
    """Advises Linux to read and map an archive in large pages, which it may ignore.

    Otherwise Linux reads uncached data in pieces of the disk's ``read_ahead_kb``, usually 128 KiB, into pages of at
    most that size.
    """
    if _LARGE_PAGES is None:
        return
    views = [np.frombuffer(entry.file_view, np.uint8) for _, entry in index.items() if entry.is_file and entry.length]
    if views:
        start = min(view.ctypes.data for view in views) // mmap.PAGESIZE * mmap.PAGESIZE
        stop = max(view.ctypes.data + view.nbytes for view in views)
        ctypes.CDLL(None).madvise(ctypes.c_void_p(start), ctypes.c_size_t(stop - start), _LARGE_PAGES)
