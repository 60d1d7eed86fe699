"""Settings of the C library's allocator for a process that serves."""

import ctypes
import os
import platform
from collections.abc import Mapping
from typing import Final

# Parameters of glibc's mallopt, and the environment variables that set them.
_TRIM_THRESHOLD: Final = -1
_MMAP_THRESHOLD: Final = -3
_ARENA_MAX: Final = -8
_VARIABLES: Final = {
    _ARENA_MAX: "MALLOC_ARENA_MAX",
    _MMAP_THRESHOLD: "MALLOC_MMAP_THRESHOLD_",
    _TRIM_THRESHOLD: "MALLOC_TRIM_THRESHOLD_",
}
_TUNABLES: Final = "GLIBC_TUNABLES"
# By default each thread gets an arena, up to eight for each core, and an arena keeps what is freed. When a block of
# some MiB is freed, glibc raises the size from which it maps blocks one by one, up to 32 MiB. The arena of each thread
# then keeps the features of the sound that the thread transcribed last. With a fixed size, glibc returns such blocks.
_VALUES: Final = {_ARENA_MAX: 2, _MMAP_THRESHOLD: 2**20, _TRIM_THRESHOLD: 2**21}


def bound_free_memory(environment: Mapping[str, str] = os.environ) -> bool:
    """Bounds the freed memory that glibc's allocator keeps for the process; call it before threads start.

    Args:
        environment: environment variables; the allocator stays as it is if one of them sets it.

    Returns:
        True if the allocator was set.
    """
    if platform.libc_ver()[0] != "glibc" or any(name in environment for name in (*_VARIABLES.values(), _TUNABLES)):
        return False
    library = ctypes.CDLL(None)
    return all(library.mallopt(parameter, value) for parameter, value in _VALUES.items())
