"""Caches that other users could change are refused."""

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from lang_core import InputError, _user_cache, check_private, make_private, user_cache_directory


@pytest.mark.parametrize("mode", [0o700, 0o755, 0o750, 0o500])
def test_a_folder_that_its_owner_alone_writes_passes(tmp_path: Path, mode: int) -> None:
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache").chmod(mode)
    check_private(tmp_path / "cache")
    check_private(tmp_path / "cache" / "not" / "there")
    (tmp_path / "cache").chmod(0o700)


@pytest.mark.parametrize("mode", [0o777, 0o1777, 0o702, 0o707])
def test_a_folder_that_all_users_write_is_refused(tmp_path: Path, mode: int) -> None:
    """Also a sticky one: others could put an entry there first."""
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache").chmod(mode)
    with pytest.raises(
        InputError, match=f"cache: its mode is {mode:04o}, and all users can write it, so .* `chmod go-w"
    ):
        check_private(tmp_path / "cache")


def test_a_group_with_others_in_it_may_not_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache").chmod(0o770)
    user = SimpleNamespace(pw_name="ann", pw_gid=(tmp_path / "cache").stat().st_gid)
    monkeypatch.setattr(_user_cache.pwd, "getpwuid", lambda number: user)
    for name, members, passes in (
        ("ann", [], True),
        ("ann", ["ann"], True),
        ("ann", ["bob"], False),
        ("staff", [], False),
    ):
        _user_cache._is_own_group.cache_clear()
        group = SimpleNamespace(gr_name=name, gr_mem=members)
        monkeypatch.setattr(_user_cache.grp, "getgrgid", lambda number, group=group: group)
        if passes:
            check_private(tmp_path / "cache")
        else:
            with pytest.raises(InputError, match=r"its mode is 0770, and group \d+ can write it"):
                check_private(tmp_path / "cache")
    _user_cache._is_own_group.cache_clear()


def test_a_directory_above_may_be_writable_only_if_sticky(tmp_path: Path) -> None:
    cache = tmp_path / "shared" / "cache"
    cache.mkdir(parents=True)
    (tmp_path / "shared").chmod(0o777)
    with pytest.raises(InputError, match=rf"{tmp_path / 'shared'} of the cache {cache}: its mode is 0777"):
        check_private(cache)
    (tmp_path / "shared").chmod(0o1777)
    check_private(cache)


def test_a_link_is_followed(tmp_path: Path) -> None:
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    (tmp_path / "cache").symlink_to(tmp_path / "open")
    with pytest.raises(InputError, match="its mode is 0777"):
        check_private(tmp_path / "cache")


def test_a_folder_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = tmp_path / "theirs" / "cache"
    cache.mkdir(parents=True)
    check_private(cache)
    with monkeypatch.context() as patched:
        _give_away(cache, patched)
        with pytest.raises(InputError, match=f"cache: it belongs to user 4242, and this is user {os.geteuid()}"):
            check_private(cache)
    with monkeypatch.context() as patched:
        _give_away(cache.parent, patched)
        with pytest.raises(InputError, match=r"theirs of the cache .*: it belongs to user 4242"):
            check_private(cache)


def _give_away(folder: Path, patched: pytest.MonkeyPatch) -> None:
    """Lets a folder belong to user 4242; only root can do so in truth, and not in the namespace of a sandbox."""
    lstat = os.lstat

    def status(path: Path) -> os.stat_result:
        fields = list(lstat(path))
        if path == folder:
            fields[4] = 4242
        return os.stat_result(fields)

    patched.setattr(os, "lstat", status)


def test_missing_folders_are_made_for_this_user_alone(tmp_path: Path) -> None:
    make_private(tmp_path / "a" / "b")
    assert [(tmp_path / name).stat().st_mode & 0o777 for name in ("a", "a/b")] == [0o700, 0o700]


def test_a_user_without_a_home_is_told_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", no_home)
    with pytest.raises(InputError, match="has no home directory for the caches: set XDG_CACHE_HOME"):
        user_cache_directory()
