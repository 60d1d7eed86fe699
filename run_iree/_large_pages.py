"""Asks Linux to read and map an archive in large pages."""

import ctypes
import mmap
from typing import Final

import numpy as np
from iree import runtime

# None where the system has no such advice.
_LARGE_PAGES: Final[int | None] = getattr(mmap, "MADV_HUGEPAGE", None)


def ask_for_large_pages(index: runtime.ParameterIndex) -> None:
    """Says of what an archive maps that it is better read and mapped in large pages; a system may take no notice.

    Without it Linux reads what is not in its cache in pieces of the disk's ``read_ahead_kb``, usually 128 KiB, into
    pages that are no larger.
    """
    if _LARGE_PAGES is None:
        return
    views = [np.frombuffer(entry.file_view, np.uint8) for _, entry in index.items() if entry.is_file and entry.length]
    if views:
        start = min(view.ctypes.data for view in views) // mmap.PAGESIZE * mmap.PAGESIZE
        stop = max(view.ctypes.data + view.nbytes for view in views)
        ctypes.CDLL(None).madvise(ctypes.c_void_p(start), ctypes.c_size_t(stop - start), _LARGE_PAGES)
