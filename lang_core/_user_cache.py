"""Folder of the user's caches, and the check that other users cannot change a cache."""

import contextlib
import functools
import grp
import os
import pwd
import stat
from pathlib import Path

from lang_core._errors import InputError

_ADVICE = "set XDG_CACHE_HOME to a directory that only you can write"


def user_cache_directory() -> Path:
    """Returns ``$XDG_CACHE_HOME/tapeline``, by default ``~/.cache/tapeline``; creates nothing.

    A relative ``XDG_CACHE_HOME`` is ignored, as the XDG specification asks.

    Raises:
        InputError: ``XDG_CACHE_HOME`` is not set, and the user lacks a home directory.
    """
    home = os.environ.get("XDG_CACHE_HOME")
    if home and Path(home).is_absolute():
        return Path(home, "tapeline")
    try:
        return Path(Path.home(), ".cache", "tapeline")
    except RuntimeError:
        raise InputError(f"user {os.geteuid()} has no home directory for the caches: {_ADVICE}") from None


def check_private(folder: Path) -> None:
    """Checks that other users cannot change the contents of a cache's folder.

    The folder must belong to this user or to root, and only its owner may write it. A directory above it may be
    writable by others only if it is sticky, as /tmp is. A group with the user's name and only this member counts as the
    user. A folder that does not exist passes if the directories above it do.

    Raises:
        InputError: another user can change the contents; names the directory and its mode.
    """
    real = Path(os.path.realpath(folder))
    for path in (real, *real.parents):
        with contextlib.suppress(FileNotFoundError, NotADirectoryError, PermissionError):
            problem = _problem(os.lstat(path), is_cache=path == real)
            if problem:
                where = "" if path == real else f" of the cache {folder}"
                raise InputError(
                    f"{path}{where}: {problem}, so another user could change what Tapeline runs: remove its "
                    f"contents and run `chmod go-w {path}` as its owner, or {_ADVICE}"
                )


def make_private(folder: Path) -> None:
    """Creates a cache's folder, and missing directories above it, for this user alone; see ``check_private``.

    Raises:
        InputError: another user can change the contents of the folder.
        OSError: the folder cannot be created.
    """
    check_private(folder)
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    for path in reversed(missing):
        path.mkdir(mode=0o700, exist_ok=True)
    check_private(folder)


def _problem(status: os.stat_result, *, is_cache: bool) -> str:
    """Returns the reason why another user can change a directory; empty if none can."""
    if not stat.S_ISDIR(status.st_mode):
        return ""  # nothing can lie below it
    mode = stat.S_IMODE(status.st_mode)
    trusted = {os.geteuid(), 0} if is_cache else {os.geteuid(), 0, _unmapped()}
    if status.st_uid not in trusted:
        return f"it belongs to user {status.st_uid}, and this is user {os.geteuid()}"
    if mode & stat.S_ISVTX and not is_cache:
        return ""
    if mode & stat.S_IWOTH:
        return f"its mode is {mode:04o}, and all users can write it"
    if mode & stat.S_IWGRP and not _is_own_group(status.st_gid):
        return f"its mode is {mode:04o}, and group {status.st_gid} can write it"
    return ""


@functools.cache
def _is_own_group(number: int) -> bool:
    """Returns whether this user is the only member of a group, as where each user has a group of the user's name."""
    try:
        user, group = pwd.getpwuid(os.geteuid()), grp.getgrgid(number)
    except KeyError:
        return False
    return number == user.pw_gid and group.gr_name == user.pw_name and set(group.gr_mem) <= {user.pw_name}


@functools.cache
def _unmapped() -> int:
    """Returns the number under which a user namespace shows owners that are not in it, such as root."""
    try:
        return int(Path("/proc/sys/kernel/overflowuid").read_text())
    except (OSError, ValueError):
        return 0
