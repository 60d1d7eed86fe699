"""Cache folders of Tapeline."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from autotune import cache_directory
from lang_core import InputError, near_names, user_cache_directory
from run_iree import evict
from tapeline.bundle import RECORDS
from tapeline.hub import hub_state

HUB: Final = "hub"


@dataclass(frozen=True, slots=True)
class CacheFolder:
    """Folder of things that can be made or fetched again.

    Attributes:
        name: ``bundles``, ``modules``, ``kernels``, ``trusted`` or ``hub``.
        holds: its contents, in a few words.
        path: the folder; it may not exist yet.
        entries: number of files and folders directly in it.
        nbytes: bytes of all files below it; a file with several names counts once.
    """

    name: str
    holds: str
    path: Path
    entries: int
    nbytes: int


def cache_folders() -> list[CacheFolder]:
    """Returns the folders: bundles, compiled modules, tuned kernels, records of trusted files, files of the hub."""
    own = user_cache_directory()
    return [
        _folder("bundles", "models that generate, chat and serve exported by themselves", own / "bundles"),
        _folder("modules", "compiled modules", own / "modules"),
        _folder("kernels", "tuned configurations of kernels", cache_directory()),
        _folder(RECORDS, "hashes of files that were compiled or compared here", own / RECORDS),
        _folder(HUB, "files of the Hugging Face hub, shared with other programs", hub_state().cache),
    ]


def clear_caches(names: Sequence[str] = ()) -> list[CacheFolder]:
    """Empties folders of Tapeline's own; a running export keeps its files.

    Args:
        names: names of folders; if empty all but ``hub``, and ``trusted``, without which bundles are compiled again.

    Returns:
        The folders as they were before.

    Raises:
        InputError: a name is unknown, or is ``hub``, which other programs use too.
    """
    folders = {folder.name: folder for folder in cache_folders()}
    own = [name for name in folders if name != HUB]
    for name in names:
        if name == HUB:
            raise InputError(
                f"cache {HUB!r}: {folders[HUB].path} is shared with other programs: remove models from it with "
                f"`hf cache rm`"
            )
        if name not in folders:
            raise InputError(f"cache {name!r} not found; available: {', '.join(own)}{near_names(name, own)}")
    chosen = [folders[name] for name in names or [name for name in own if name != RECORDS]]
    for folder in chosen:
        if folder.path.is_dir():
            _empty(folder)
    return chosen


def _empty(folder: CacheFolder) -> None:
    try:
        evict(folder.path, 0)
    except OSError as error:
        raise InputError(f"cache {folder.name!r}: {folder.path} cannot be emptied ({error.strerror})") from error


def _folder(name: str, holds: str, path: Path) -> CacheFolder:
    entries = [entry for entry in path.iterdir() if not entry.name.startswith(".")] if path.is_dir() else []
    return CacheFolder(name, holds, path, len(entries), _nbytes(path))


def _nbytes(path: Path) -> int:
    sizes: dict[tuple[int, int], int] = {}
    for directory, _, files in os.walk(path):
        for file in files:
            status = os.lstat(os.path.join(directory, file))
            sizes[status.st_dev, status.st_ino] = status.st_size
    return sum(sizes.values())
