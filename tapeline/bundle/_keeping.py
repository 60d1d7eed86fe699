"""Bundles of the cache that processes use, which are not evicted."""

import contextlib
import fcntl
import os
import weakref
from pathlib import Path
from typing import Final

from run_iree import is_locked
from tapeline.bundle._bundle import Bundle

LOCKS: Final = "locks"
"""Name of the folder beside that of the bundles in which processes lock files."""


def keep_cached(bundle: Bundle) -> None:
    """Keeps other processes from evicting a bundle of the cache while this process has the bundle."""
    with contextlib.suppress(OSError):
        descriptor = os.open(_lock_of(bundle.path), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(descriptor, fcntl.LOCK_SH)
        weakref.finalize(bundle, os.close, descriptor)


def is_kept(path: Path) -> bool:
    """Returns whether a process has a bundle of the cache."""
    return is_locked(_lock_of(path))


def _lock_of(path: Path) -> Path:
    return path.parent.with_name(LOCKS) / f"{path.name}.used"
