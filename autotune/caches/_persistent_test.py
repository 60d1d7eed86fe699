import json
import multiprocessing
import os
import random
import signal
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from autotune import (
    CacheEntry,
    CacheWarning,
    ConfigSelectorChain,
    Executor,
    KernelError,
    Key,
    Measurement,
    PersistentCache,
    cache_directory,
)
from autotune._kernels_testing import Blocks, Matmul, chain, matrices
from lang_core import InputError

# By hand, for the full size: TAPELINE_CACHE_STRESS=8x100.
_PROCESSES, _WRITES = map(int, os.environ.get("TAPELINE_CACHE_STRESS", "4x25").split("x"))


def _key(call: str = "0" * 16, device: str = "d", source: str = "") -> Key:
    return Key(device, "op@v1", call, source)


def test_what_is_put_is_there_in_another_process(tmp_path: Path) -> None:
    file = tmp_path / "deep" / "k.json"
    assert PersistentCache(path=file).get("d", "op@v1", "k") is None
    assert PersistentCache(path=file).put("d", "op@v1", "k", Blocks(2, "x"))
    result = PersistentCache(path=file).get("d", "op@v1", "k")
    assert result == Blocks(2, "x")
    assert type(result) is Blocks


@pytest.mark.parametrize(
    "cfg", [1, 2.5, "x", True, (1, (2, "a")), [1, 2], {"a": (1, 2)}, Blocks(3), (Blocks(1), None)], ids=repr
)
def test_configurations_come_back_as_they_were(tmp_path: Path, cfg: Any) -> None:
    PersistentCache(path=tmp_path / "k.json").put("d", "op@v1", "k", cfg)
    result = PersistentCache(path=tmp_path / "k.json").get("d", "op@v1", "k")
    assert (result, type(result)) == (cfg, type(cfg))


def test_a_loader_and_a_dumper_of_ones_own(tmp_path: Path) -> None:
    def cache() -> PersistentCache[Any]:
        return PersistentCache(
            path=tmp_path / "k.json", dumper=lambda c: [c.real, c.imag], loader=lambda r: complex(*r)
        )

    cache().put("d", "op@v1", "k", 1 + 2j)
    assert cache().get("d", "op@v1", "k") == 1 + 2j
    with pytest.raises(KernelError, match=r"a configuration has \(1\+2j\) of type complex in it, which cannot be rem"):
        PersistentCache(path=tmp_path / "o.json").put("d", "op@v1", "k", 1 + 2j)


def test_a_configuration_whose_class_changed_is_a_miss_that_says_why(tmp_path: Path) -> None:
    made, _, _ = chain(persistent=PersistentCache(path=tmp_path / "k.json"))
    executor = Executor(made)
    executor(Matmul(), *matrices())
    text = (tmp_path / "k.json").read_text().replace('"rows"', '"lines"')
    (tmp_path / "k.json").write_text(text)
    other, _, _ = chain(persistent=PersistentCache(path=tmp_path / "k.json"), policy="heuristics")
    selection = Executor(other).explain(Matmul(), *matrices())
    assert selection.tier == "heuristics"
    assert "unexpected keyword argument 'lines'" in dict(selection.passed)["persistent"]


def test_another_source_of_the_kernel_is_another_entry(tmp_path: Path) -> None:
    cache = PersistentCache(path=tmp_path / "k.json")
    cache.store(CacheEntry(_key(source="old"), 1))
    cache.store(CacheEntry(_key(source="new"), 2))
    result = [cache.find(_key(source=source)) for source in ("old", "new", "other")]
    assert [value and value.cfg for value in result] == [1, 2, None]
    assert cache.near(_key(source="other")) == "has the call of another source of the kernel"
    assert cache.near(_key(device="e")) == "has the call of another device, or other versions or flags"
    assert cache.near(_key("1" * 16)) == "has 2 other calls of the op"
    assert cache.near(Key("d", "else@v1", "k")) == "has nothing of the op"
    cache.put("d", "op@v1", "0" * 16, 3)
    by_hand = cache.find(_key(source="other"))
    assert by_hand is not None
    assert by_hand.cfg == 3


def test_what_is_pinned_stays_until_it_is_pinned_anew(tmp_path: Path) -> None:
    cache = PersistentCache(path=tmp_path / "k.json")
    cache.put("d", "op@v1", "k", 1, "pinned")
    cache.put("d", "op@v1", "k", 2)
    assert cache.get("d", "op@v1", "k") == 1
    cache.put("d", "op@v1", "k", 3, "pinned")
    assert cache.get("d", "op@v1", "k") == 3


def test_history_comes_back_and_infinities_too(tmp_path: Path) -> None:
    entry = CacheEntry(
        _key(), Blocks(2), "tuned", (Measurement(Blocks(2), 0.5), Measurement(Blocks(3), float("inf"), "failed", "x")),
        {"device": "d"}, {"a": 1}, "m:K",
    )  # fmt: skip
    PersistentCache(path=tmp_path / "k.json").store(entry)
    assert PersistentCache(path=tmp_path / "k.json").find(_key()) == entry
    assert PersistentCache(path=tmp_path / "k.json").entries() == [entry]


_DAMAGES = (
    "", "{", "[]", '{"schema": 1}', '{"schema": 1, "entries": 3}', "\x00\xff", "null", '{"schema": "x"}',
    '{"schema": 1, "entries": {"x": {}}, "failures": {}}',
    '{"schema": 1, "entries": {"[\\"d\\"]": {}}, "failures": {}}',
    '{"schema": 1, "entries": {"[1, 2, 3]": 4}, "failures": {}}', '{"schema": 1, "entries": [], "failures": []}',
)  # fmt: skip


def _contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("damage", _DAMAGES)
def test_a_damaged_file_of_our_own_is_moved_aside_by_a_writer_alone(
    tmp_path: Path, damage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TAPELINE_KERNEL_CACHE", str(tmp_path))
    cache: PersistentCache[int] = PersistentCache("k")
    cache.path.parent.mkdir()
    cache.path.write_text(damage)
    before = _contents(tmp_path)
    with pytest.warns(CacheWarning, match=r"k\.json: damaged \(.*\); counts as empty"):
        assert cache.get("d", "op@v1", "k") is None
    assert (cache.entries(), cache.keys(), cache.size()) == ([], [], 0)
    assert _contents(tmp_path) == before
    with pytest.warns(CacheWarning, match=r"k\.json: damaged \(.*\); moved to k\.json\.corrupt-\d+"):
        assert cache.put("d", "op@v1", "k", 1)
    assert [value.read_text() for value in cache.path.parent.glob("k.json.corrupt-*")] == [damage]
    assert PersistentCache(path=cache.path).get("d", "op@v1", "k") == 1


@pytest.mark.parametrize("damage", [*_DAMAGES, '{"schema": 2}', "a folder", "unreadable"])
def test_a_file_of_the_user_that_is_no_cache_is_refused_and_left_alone(tmp_path: Path, damage: str) -> None:
    """No call renames it, changes it, or puts a file beside it: it may be anything, named by mistake."""
    file, good = tmp_path / "notes.json", PersistentCache[int](path=tmp_path / "good.json")
    good.put("d", "op@v1", "k", 1)
    if damage == "a folder":
        file.mkdir()
    elif damage == "unreadable":
        file.symlink_to("/proc/self/mem")  # reads at its start fail, for root too
    else:
        file.write_text(damage)
    before, names = _contents(tmp_path) if damage != "unreadable" else {}, sorted(os.listdir(tmp_path))
    cache = PersistentCache[int](path=file)
    calls = [
        cache.entries, cache.keys, cache.size, cache.clear, lambda: cache.get("d", "op@v1", "k"),
        lambda: cache.find(_key()), lambda: cache.near(_key()), lambda: cache.failures(_key()),
        lambda: cache.put("d", "op@v1", "k", 1), lambda: cache.note_failures(_key(), {"a": "b"}),
        lambda: good.export(file), lambda: cache.export(tmp_path / "other.json"),
    ]  # fmt: skip
    for call in calls:
        with pytest.raises(InputError, match=r"notes\.json: (not a file of kernel configurations \(|has schema 2, )"):
            call()
    assert sorted(os.listdir(tmp_path)) == names
    assert damage == "unreadable" or _contents(tmp_path) == before


def test_a_file_of_another_schema_is_left_alone(tmp_path: Path) -> None:
    file = tmp_path / "k.json"
    file.write_text('{"schema": 2}')
    with pytest.raises(InputError, match=r"k\.json: has schema 2, this Tapeline reads 1: name another file"):
        PersistentCache(path=file).put("d", "op@v1", "k", 1)
    assert file.read_text() == '{"schema": 2}'


@pytest.mark.parametrize("place", ["below a file", "a full disk"])
def test_where_nothing_can_be_written_a_warning_says_so_once(
    tmp_path: Path, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file" / "k.json" if place == "below a file" else tmp_path / "k.json"
    (tmp_path / "file").write_text("")
    cache = PersistentCache(path=path)
    if place == "a full disk":
        assert PersistentCache(path=path).put("d", "op@v1", "i", 0)
        monkeypatch.setattr(os, "fsync", lambda _: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    with pytest.warns(CacheWarning, match=r"cannot be written.*configurations are remembered in this process only"):
        assert not cache.put("d", "op@v1", "k", 1)
    assert not cache.put("d", "op@v1", "l", 2)
    assert (cache.get("d", "op@v1", "k"), cache.get("d", "op@v1", "l")) == (1, 2)


def test_the_directory_is_the_users_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TAPELINE_KERNEL_CACHE", str(tmp_path / "a"))
    assert cache_directory() == tmp_path / "a"
    assert PersistentCache().path == tmp_path / "a" / "v1" / "kernels.json"
    monkeypatch.delenv("TAPELINE_KERNEL_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "b"))
    assert cache_directory() == tmp_path / "b" / "tapeline" / "kernels"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")  # to be ignored, says the specification
    monkeypatch.setenv("HOME", str(tmp_path / "c"))
    assert cache_directory() == tmp_path / "c" / ".cache" / "tapeline" / "kernels"


def test_one_object_sees_what_another_one_writes(tmp_path: Path) -> None:
    one, other = (PersistentCache(path=tmp_path / "k.json") for _ in range(2))
    for number in range(20):
        one.put("d", "op@v1", str(number), number)
        assert other.get("d", "op@v1", str(number)) == number
        other.put("d", "op@v1", f"other {number}", number)
    assert one.size() == other.size() == 40


def test_threads_lose_nothing(tmp_path: Path) -> None:
    caches = [PersistentCache(path=tmp_path / "k.json")] * 2 + [PersistentCache(path=tmp_path / "k.json")] * 2
    threads = [
        threading.Thread(target=lambda c=c, n=n: [c.put("d", "op@v1", f"{n} {i}", i) for i in range(10)])
        for n, c in enumerate(caches)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert PersistentCache(path=tmp_path / "k.json").size() == 40


def _write(path: str, number: int, count: int, reported: str) -> None:
    cache = PersistentCache(path=path)
    with open(reported, "a", buffering=1) as file:
        for i in range(count):
            if cache.put("d", "op@v1", f"{number} {i}", (number, i)):
                file.write(f"{number} {i}\n")


def test_processes_that_are_killed_lose_nothing_that_was_reported(tmp_path: Path) -> None:
    """Several processes write at once; half of them never stop, and are killed at random moments."""
    context = multiprocessing.get_context("spawn")
    file = tmp_path / "k.json"
    chance = random.Random(5)
    running: dict[int, Any] = {}
    lives: dict[int, int] = {}
    for number in range(_PROCESSES):
        writes = _WRITES if number % 2 else 10**6
        reported = str(tmp_path / f"reported.{number}")
        running[number] = context.Process(target=_write, args=(str(file), number, writes, reported))
        running[number].start()
        lives[number] = chance.randint(1, _WRITES)
    deadline = time.monotonic() + 300
    while running and time.monotonic() < deadline:
        time.sleep(chance.random() * 0.01)
        for number, process in list(running.items()):
            path = tmp_path / f"reported.{number}"
            if number % 2 == 0 and path.exists() and len(path.read_text().splitlines()) >= lives[number]:
                os.kill(process.pid, signal.SIGKILL)
                process.join()
            if not process.is_alive():
                assert process.exitcode == (0 if number % 2 else -signal.SIGKILL)
                running.pop(number).join()
    assert not running
    reported = {line for path in tmp_path.glob("reported.*") for line in path.read_text().splitlines() if line}
    assert len(reported) >= _PROCESSES // 2 * (_WRITES + 1)
    entries = {entry.key.call: entry.cfg for entry in PersistentCache(path=file).entries()}
    assert {call for call in reported if call not in entries} == set()
    assert all(tuple(map(int, call.split())) == cfg for call, cfg in entries.items())
    assert not list(tmp_path.glob("*.corrupt-*"))
    json.loads(file.read_text())
    PersistentCache(path=file).put("d", "op@v1", "last", 1)
    assert not list(tmp_path.glob(".*.tmp")), "what killed writers left is gone"


def test_clear_of_all_of_an_op_or_of_a_call(tmp_path: Path) -> None:
    cache = PersistentCache(path=tmp_path / "k.json")
    for op, call in (("a@v1", "1"), ("a@v1", "2"), ("a@v2", "1"), ("b@v1", "1")):
        cache.put("d", op, call, 1)
        cache.note_failures(Key("d", op, call), {"0": "no"})
    assert cache.clear("a", "2") == 1
    assert cache.clear("a@v2") == 1
    assert sorted(cache.keys()) == [("d", "a@v1", "1"), ("d", "b@v1", "1")]
    assert cache.failures(Key("d", "a@v1", "2")) == {}
    assert cache.clear() == 2
    assert PersistentCache(path=tmp_path / "k.json").size() == 0


def test_caches_of_two_machines_are_carried_and_never_mix(tmp_path: Path) -> None:
    here, there = PersistentCache(path=tmp_path / "here.json"), PersistentCache(path=tmp_path / "there.json")
    here.put("laptop", "op@v1", "k", 1)
    there.put("server", "op@v1", "k", 2)
    there.put("laptop", "op@v1", "k", 3)
    there.note_failures(Key("server", "op@v1", "k"), {"7": "no"})
    assert there.export(tmp_path / "carried.json") == 2
    assert here.import_from(tmp_path / "carried.json") == 1
    assert (here.get("laptop", "op@v1", "k"), here.get("server", "op@v1", "k")) == (1, 2)
    assert here.failures(Key("server", "op@v1", "k")) == {"7": "no"}
    with pytest.raises(InputError, match=r"no\.json: no such file"):
        here.import_from(tmp_path / "no.json")
    (tmp_path / "bad.json").write_text('{"schema": 1, "entries": {"x": 1}, "failures": {}}')
    with pytest.raises(InputError, match=r"bad\.json: not an exported file of kernel configurations"):
        here.import_from(tmp_path / "bad.json")


@dataclass(frozen=True)
class _Local:
    size: int


def test_a_class_that_is_not_loaded_is_a_mapping_in_a_listing(tmp_path: Path) -> None:
    cache = PersistentCache(path=tmp_path / "k.json")
    cache.put("d", "op@v1", "k", _Local(4))
    (tmp_path / "k.json").write_text((tmp_path / "k.json").read_text().replace("_Local", "_Gone"))
    assert cache.entries()[0].cfg == {"size": 4}
    with pytest.raises(KernelError, match=r"the remembered configuration .*_Gone.* cannot be read"):
        cache.get("d", "op@v1", "k")


def test_a_chain_without_a_file_writes_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TAPELINE_KERNEL_CACHE", str(tmp_path))
    Executor(ConfigSelectorChain(policy="heuristics"))(Matmul(), *matrices())
    assert list(tmp_path.iterdir()) == []
