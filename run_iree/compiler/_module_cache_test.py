"""The cache of compiled modules: bounded, shared by processes, and never in the way of a compilation."""

import dataclasses
import fcntl
import json
import multiprocessing
import os
import random
import shutil
import time
from pathlib import Path

import pytest

from run_iree._device_testing import STEP
from run_iree.compiler import _compile
from run_iree.compiler._compile import compile_module
from run_iree.compiler._eviction import evict
from run_iree.compiler._module_cache import ModuleCache
from run_iree.compiler._targets import target_named

_LONG = os.environ.get("TAPELINE_LONG") == "1"


def _cache(folder: Path, limit: int = 2**30) -> tuple[ModuleCache, list[str]]:
    warnings: list[str] = []
    return ModuleCache(folder / "modules", limit, warnings.append), warnings


def _module(folder: Path, content: bytes) -> Path:
    path = folder / "module.vmfb"
    path.write_bytes(content)
    return path


def _key(number: int) -> str:
    return f"{number:064x}"


def test_a_module_is_kept_with_its_facts(tmp_path: Path) -> None:
    cache, _ = _cache(tmp_path)
    assert cache.fetch(_key(1), tmp_path / "out") is None
    cache.store(_key(1), _module(tmp_path, b"one\ntwo"), {"schedules": {"f": 3}})
    assert cache.fetch(_key(1), tmp_path / "out") == {"schedules": {"f": 3}}
    assert (tmp_path / "out").read_bytes() == b"one\ntwo"
    assert cache.fetch(_key(2), tmp_path / "out") is None


@pytest.mark.parametrize("damage", ["module", "short", "header", "facts", "empty"])
def test_a_damaged_entry_is_removed(damage: str, tmp_path: Path) -> None:
    cache, warnings = _cache(tmp_path)
    cache.store(_key(1), _module(tmp_path, b"0123456789" * 300), {})
    (path,) = cache.directory.glob("*.module")
    whole = path.read_bytes()
    header, _, module = whole.partition(b"\n")
    sha256 = json.loads(header)["sha256"]
    path.write_bytes(
        {
            "module": whole[:-1] + b"!",
            "short": whole[:-7],
            "header": b"{" + whole,
            "facts": json.dumps({"sha256": sha256}).encode() + b"\n" + module,
            "empty": b"",
        }[damage]
    )
    assert cache.fetch(_key(1), tmp_path / "out") is None
    assert not path.exists()
    assert not warnings
    cache.store(_key(1), _module(tmp_path, b"again"), {})
    assert cache.fetch(_key(1), tmp_path / "out") == {}


def test_a_folder_that_cannot_be_written_is_a_warning(tmp_path: Path) -> None:
    (tmp_path / "modules").write_text("a file in the way of the folder")
    cache, warnings = _cache(tmp_path)
    cache.store(_key(1), _module(tmp_path, b"x"), {})
    assert cache.fetch(_key(1), tmp_path / "out") is None
    assert "cannot keep a compiled module in " in warnings[0]
    assert "set TAPELINE_MODULE_CACHE=0 to turn the cache off" in warnings[0]
    assert "cannot read " in warnings[1]


def test_a_module_that_would_push_out_the_others_is_not_kept(tmp_path: Path) -> None:
    cache, _ = _cache(tmp_path, limit=1000)
    cache.store(_key(1), _module(tmp_path, bytes(251)), {})
    assert not cache.directory.exists()


def test_an_abandoned_file_is_removed_and_a_young_one_stays(tmp_path: Path) -> None:
    for name in (".old", ".young"):
        (tmp_path / name).write_bytes(bytes(9))
    old = time.time() - 7200
    os.utime(tmp_path / ".old", (old, old))
    assert evict(tmp_path, 0) == [tmp_path / ".old"]


def test_folders_are_entries_too(tmp_path: Path) -> None:
    for age, name in enumerate(("new", "old")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a").write_bytes(bytes(400))
        os.utime(tmp_path / name, (1000 - age, 1000 - age))
    assert evict(tmp_path, 500) == [tmp_path / "old"]
    assert evict(tmp_path, 0, keep=tmp_path / "new") == []


def test_random_operations_keep_the_bound_and_the_last_used(tmp_path: Path) -> None:
    """Against a model of the cache: a list of keys in the order of their use."""
    draw = random.Random(4)
    for trial in range(40 if _LONG else 6):
        folder = tmp_path / str(trial)
        folder.mkdir()
        cache, warnings = _cache(folder, limit=4000)
        used: dict[str, int] = {}
        for clock in range(60):
            key = _key(draw.randrange(12))
            known = key in used
            if draw.random() < 0.5:
                cache.store(key, _module(folder, key.encode() * draw.randrange(1, 9)), {"key": key})
                used[key] = 0
            else:
                assert cache.fetch(key, folder / "out") == ({"key": key} if known else None)
                assert not known or (folder / "out").read_bytes()[:64] == key.encode()
            if key in used:
                used.pop(key)
                used[key] = _settle(cache, key, clock)
            while sum(used.values()) > cache.limit:
                used.pop(next(iter(used)))
            assert {path.stem for path in cache.directory.glob("*.module")} == set(used)
        assert not warnings


def _settle(cache: ModuleCache, key: str, clock: int) -> int:
    """Gives an entry's use a time of its own, as the clock of a file system may be coarse; returns its size."""
    path = cache.directory / f"{key}.module"
    os.utime(path, (clock - 10_000, clock - 10_000))
    return path.stat().st_size


def _work(folder: Path, seed: int) -> None:
    draw, scratch = random.Random(seed), folder / str(seed)
    scratch.mkdir()
    cache, warnings = _cache(folder, limit=6000)
    for _ in range(400 if _LONG else 60):
        key = _key(draw.randrange(20))
        if draw.random() < 0.5:
            cache.store(key, _module(scratch, key.encode() * 10), {"key": key})
        elif (facts := cache.fetch(key, scratch / "out")) is not None:
            assert facts == {"key": key}
            assert (scratch / "out").read_bytes() == key.encode() * 10
    assert not warnings


def test_processes_share_a_cache(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    workers = [context.Process(target=_work, args=(tmp_path, seed)) for seed in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert [worker.exitcode for worker in workers] == [0] * 4
    assert sum(path.stat().st_size for path in (tmp_path / "modules").glob("*.module")) <= 6000
    assert not [path for path in (tmp_path / "modules").glob(".*") if path.name != ".lock"]


def test_a_compiler_that_dumps_runs_each_time(tmp_path: Path) -> None:
    cache, _ = _cache(tmp_path)
    source = tmp_path / "m.mlir"
    source.write_text(STEP)
    for folder in (tmp_path / "first", tmp_path / "second"):
        folder.mkdir()
        dumps = tmp_path / "dumps"
        flags = [f"--iree-hal-dump-executable-sources-to={dumps}"]
        report = compile_module(source, folder / "module.vmfb", target_named("vmvx"), extra_flags=flags, cache=cache)
        assert not report.cached
        assert list(dumps.glob("*.mlir"))
        shutil.rmtree(dumps)


def test_the_same_text_is_compiled_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache, warnings = _cache(tmp_path)
    source, target = tmp_path / "m.mlir", target_named("vmvx")
    source.write_text(STEP)
    first = compile_module(source, tmp_path / "a.vmfb", target, cache=cache)
    compiled: list[list[str]] = []
    run = _compile._run
    monkeypatch.setattr(_compile, "_run", lambda command, folder: compiled.append(command) or run(command, folder))
    again = compile_module(source, tmp_path / "b.vmfb", target, cache=cache)
    assert not compiled
    assert (first.cached, again.cached) == (False, True)
    assert (again.schedules, again.vmfb_bytes, again.flags) == (first.schedules, first.vmfb_bytes, first.flags)
    assert (tmp_path / "a.vmfb").read_bytes() == (tmp_path / "b.vmfb").read_bytes()
    flag = "--iree-vm-bytecode-module-strip-source-map=true"
    assert not compile_module(source, tmp_path / "c.vmfb", target, extra_flags=[flag], cache=cache).cached
    other = dataclasses.replace(target, flags=(*target.flags, flag))
    assert compile_module(source, tmp_path / "c.vmfb", other, cache=cache).cached  # the same flags
    source.write_text(STEP.replace("@main", "@other"))
    assert not compile_module(source, tmp_path / "d.vmfb", target, cache=cache).cached
    assert len(compiled) == 2
    assert not warnings


def test_a_clock_that_jumps_removes_nothing_that_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process locks what it writes; what a dead one left goes, at the latest an hour of the clock later."""
    (tmp_path / ".bundle.partial").mkdir()
    (tmp_path / ".entry.module.x").write_bytes(b"half")
    (tmp_path / ".left.module.y").write_bytes(b"half")
    folder = os.open(tmp_path / ".bundle.partial", os.O_RDONLY)
    with (tmp_path / ".entry.module.x").open("rb") as file:
        fcntl.flock(folder, fcntl.LOCK_EX)
        fcntl.flock(file, fcntl.LOCK_EX)
        now = time.time()
        monkeypatch.setattr(time, "time", lambda: now - 10**8)
        assert evict(tmp_path, 0) == []
        monkeypatch.setattr(time, "time", lambda: now + 10**8)
        assert [path.name for path in evict(tmp_path, 0)] == [".left.module.y"]
    os.close(folder)
    assert sorted(path.name for path in evict(tmp_path, 0)) == [".bundle.partial", ".entry.module.x"]


def test_an_entry_that_is_used_stays(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).write_bytes(b"x" * 10)
    assert [path.name for path in evict(tmp_path, 0, is_used=lambda path: path.name == "a")] == ["b"]
