"""tools:tune on calls that a run recorded."""

import dataclasses
import functools
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from autotune import ConfigSelectorChain, Executor, Key, PersistentCache, forget_invocations
from autotune.iree_compiler import CpuKernelsKernel
from autotune.supplied import GatedDeltaConfig, GatedDeltaKernel, SoftmaxConfig, SoftmaxKernel
from run_iree import host_cpu
from run_iree.kernels import CpuKernels
from tapeline.tuning import tuned_target
from tests.product._bundles import Finished, invoke

Tune = Callable[..., Finished]


@pytest.fixture
def tune(capsys: pytest.CaptureFixture[str]) -> Tune:
    return lambda action, *flags: invoke("tune", capsys, f"--action={action}", *flags)


@pytest.fixture(autouse=True)
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> PersistentCache[Any]:
    """The user's own cache, and a record of two calls."""
    monkeypatch.setenv("TAPELINE_KERNEL_CACHE", str(tmp_path))
    monkeypatch.setenv("TAPELINE_OPS_RECORD", "1")
    monkeypatch.delenv("TAPELINE_OPS_RECORD_FILE", raising=False)
    forget_invocations()
    executor = Executor(ConfigSelectorChain(policy="heuristics"))
    executor(SoftmaxKernel(), _x(3, 50))
    executor(GatedDeltaKernel(), _x(1, 6, 2, 4), _x(1, 6, 2, 4), _x(1, 6, 2, 3))
    monkeypatch.setenv("TAPELINE_OPS_RECORD", "0")
    forget_invocations()
    return PersistentCache()


def _x(*shape: int) -> Any:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32) / 2


def _entry(tune: Tune, *flags: str) -> dict[str, Any]:
    (explained,) = json.loads(tune("explain", "--format=json", *flags).out)
    return explained


@pytest.mark.parametrize("action", ["list", "explain", "pin", "clear"])
def test_a_file_that_is_no_cache_is_refused_and_stays(action: str, tune: Tune, tmp_path: Path) -> None:
    other = tmp_path / "files" / "report.json"
    other.parent.mkdir()
    other.write_text('{"notes": "mine"}')
    finished = tune(action, f"--cache={other}")
    assert (finished.code, finished.out) == (2, "")
    assert finished.err.startswith(f"error: {other}: not a file of kernel configurations (it has no 'schema')")
    assert [(path.name, path.read_text()) for path in other.parent.iterdir()] == [(other.name, '{"notes": "mine"}')]


@pytest.mark.parametrize(
    ("action", "given", "message"),
    [
        ("list", ("--bundle=absent",), "--bundle goes with explain, and not with list: leave it out"),
        ("cpu", ("--op=softmax", "--rounds=1"), "--op goes with list and explain and recorded and pin and clear"),
        ("clear", ("--record=a.json",), "--record goes with recorded, and not with clear"),
        ("export", ("--file=a", "--cfg={}"), "--cfg goes with pin, and not with export"),
        ("explain", ("--bundle=absent", "--call=ab"), "--call names a call that is remembered"),
        ("explain", ("--bundle=absent",), "absent: there is no such directory"),
    ],
)
def test_flags_that_choose_what_another_action_works_on_are_refused(
    action: str, given: tuple[str, ...], message: str, tune: Tune, cache: PersistentCache[Any]
) -> None:
    finished = tune(action, *given)
    assert (finished.code, finished.out) == (2, "")
    assert finished.err.startswith(f"error: {message}")
    assert not cache.path.exists()


def test_recorded_calls_are_tuned_listed_and_drawn(tune: Tune, cache: PersistentCache[Any], tmp_path: Path) -> None:
    finished = tune("recorded", "--rounds=1", f"--picture={tmp_path / 'bars.svg'}")
    assert finished.code == 0
    head, *rows = finished.out.splitlines()
    assert head.split() == ["call", "heuristic", "best", "gain", "configuration"]
    assert sorted(row.split()[0] for row in rows) == ["gated_delta_rule@v0", "softmax@v0"]
    assert "tuning 2 of 2: gated_delta_rule@v0" in finished.err
    assert cache.size() == 2
    picture = (tmp_path / "bars.svg").read_text()
    assert all(word in picture for word in ("softmax@v0 float32[3,50]", "form=reciprocal", "chunk=1", "microseconds"))
    listing = tune("list").out
    assert listing.count("numpy|cpu  tuned") == 2
    assert "float32[1,6,2,4], float32[1,6,2,4], float32[1,6,2,3]" in listing
    assert len(tune("list", "--op=softmax").out.splitlines()) == 2
    explained = Executor(ConfigSelectorChain(policy="cached-only", persistent=PersistentCache())).explain(
        SoftmaxKernel(), _x(3, 50)
    )
    assert explained.tier == "persistent"


def test_a_configuration_is_explained_pinned_and_forgotten(tune: Tune, cache: PersistentCache[Any]) -> None:
    tune("recorded", "--rounds=1")
    text = tune("explain", "--op=gated_delta_rule").out
    for words in (
        "from           tuned, 20",
        "holds here     yes: the persistent tier",
        "candidates, the reference",
    ):
        assert words in text
    assert text.count("  *  chunk=") == 1
    entry = _entry(tune, "--op=gated_delta_rule")
    assert [m["cfg"]["fields"] for m in entry["measurements"]] == [{"chunk": n} for n in (32, 1, 4, 8)]
    assert all(m["status"] == "ok" and m["seconds"] > 0 for m in entry["measurements"])
    pinned = tune("pin", "--op=gated_delta_rule@v0", f"--call={entry['call'][:6]}", '--cfg={"chunk": 3}')
    assert pinned.out == f"pinned gated_delta_rule@v0 {entry['call']}: chunk=3\n"
    tune("recorded", "--rounds=1")
    assert _entry(tune, "--op=gated_delta_rule")["provenance"] == "pinned"
    assert cache.get(entry["device"], "gated_delta_rule@v0", entry["call"]) == GatedDeltaConfig(3)
    assert tune("clear", f"--call={entry['call']}").out.startswith("forgot 1 entries of ")
    assert tune("clear").out.startswith("forgot 1 entries of ")
    assert tune("list").out == "nothing is remembered\n"


def test_why_an_entry_does_not_hold_here(tune: Tune, cache: PersistentCache[Any]) -> None:
    tune("recorded", "--rounds=1", "--op=softmax")
    (entry,) = cache.entries()
    cache.clear()
    text = (cache.path).read_text()
    assert "softmax" not in text
    from_elsewhere = Key("numpy|cpu|another|0", entry.key.op, entry.key.call, entry.key.source)
    cache.store(type(entry)(from_elsewhere, entry.cfg, environment={**entry.environment, "cpu": "another"}))
    explained = tune("explain").out
    assert "holds here     no: cpu differ here, and the call is chosen anew" in explained
    assert "nobody measured: it was set by hand" in explained
    cache.clear()
    older = Key(entry.key.device, entry.key.op, entry.key.call, "older")
    cache.store(type(entry)(older, entry.cfg, environment=entry.environment, kernel=entry.kernel))
    assert "holds here     no: the kernel's source changed since" in tune("explain").out


def test_entries_of_jax_are_explained(tune: Tune, cache: PersistentCache[Any]) -> None:
    assert tune("recorded", "--rounds=1", "--op=softmax", "--compiler=jax").code == 0
    (entry,) = cache.entries()
    assert entry.key.device.startswith("jax|cpu|")
    explained = tune("explain", "--op=softmax").out
    assert "holds here     yes: the persistent tier gives it" in explained
    assert "candidates, the reference first (3):" in explained
    cache.clear()
    older = [version.replace("jax ", "jax 0.0.") for version in entry.environment["versions"]]
    elsewhere = Key(f"{entry.key.device[:-1]}x", *entry.key[1:])
    cache.store(type(entry)(elsewhere, entry.cfg, environment={**entry.environment, "versions": older}))
    assert "holds here     no: versions differ here" in tune("explain").out


def test_entries_are_carried(tune: Tune, tmp_path: Path) -> None:
    tune("recorded", "--rounds=1")
    carried = tmp_path / "carried.json"
    assert tune("export", f"--file={carried}").out == f"wrote 2 entries to {carried}\n"
    other = f"--cache={tmp_path / 'other.json'}"
    assert tune("import", f"--file={carried}", other).out == f"took over 2 entries from {carried}\n"
    assert tune("import", f"--file={carried}", other).out == f"took over 0 entries from {carried}\n"
    assert tune("list", other).out == tune("list").out


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("explain", "--op=softmx"), r"op=softmx: not in .*; available: softmax@v0; did you mean 'softmax"),
        (("explain", "--call=x"), "call=x: not in .*; a list of all entries shows the calls"),
        (("pin", '--cfg={"from": "log"}'), r'not a SoftmaxConfig \(.*\): write it as \{"form": "'),
        (("pin", "--cfg={"), r'cfg=\{: not JSON \(.*\): write it as \{"form"'),
        (("export",), "export: name the file that is carried with --file"),
        (("import", "--file=nowhere.json"), "nowhere.json: no such file"),
        (("recorded", "--op=rope"), r"invocations.jsonl: has no calls of rope"),
        (("recorded", "--record=nowhere"), "nowhere: no calls were recorded there: run a model with"),
        (("list", "--kernels=no.such.module"), r"kernels=no.such.module: cannot be imported \(.*\): name a module"),
        (("recorded", "--picture=bars.txt"), r"bars.txt: unknown format of a picture '.txt'"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_what_is_wrong_is_said(tune: Tune, cache: PersistentCache[Any], flags: tuple[str, ...], message: str) -> None:
    tune("recorded", "--rounds=1", "--op=softmax")
    finished = tune(*flags)
    assert finished.code == 2
    assert re.search(message, finished.err), finished.err


def test_several_entries_are_not_guessed_among(tune: Tune) -> None:
    tune("recorded", "--rounds=1")
    finished = tune("explain")
    assert (finished.code, "2 entries match: give more of op and call: " in finished.err) == (2, True)


def test_compiled_calls_are_tuned_for_iree(tune: Tune, cache: PersistentCache[Any]) -> None:
    tune("recorded", "--rounds=1", "--op=softmax", "--compiler=iree")
    (entry,) = cache.entries()
    assert entry.key.device.startswith("iree|cpu|local-task|")
    assert {m.cfg for m in entry.measurements} == {SoftmaxConfig(form) for form in ("divide", "reciprocal", "log")}
    assert "holds here     yes: the persistent tier" in tune("explain").out


@pytest.mark.skipif(not CpuKernels.of(host_cpu().features).fma, reason="this CPU has no kernels to choose between")
def test_kernels_of_this_cpu_are_measured_remembered_and_used(
    tune: Tune, cache: PersistentCache[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(CpuKernelsKernel, "__init__", functools.partialmethod(CpuKernelsKernel.__init__, rows=64))
    finished = tune("cpu", "--rounds=1")
    assert finished.code == 0
    (entry,) = cache.entries()
    candidates = list(CpuKernels.of(host_cpu().features, host_cpu().name).candidates())
    assert [m.cfg for m in entry.measurements] == candidates
    assert {m.status for m in entry.measurements} == {"ok"}, "all kernels give the same products"
    assert finished.err.count("tuning CPU kernels, ") == len(candidates)
    assert finished.out.splitlines()[1].startswith("cpu_kernels@v")
    assert "holds here     yes: the persistent tier" in tune("explain", "--op=cpu_kernels").out
    target, origin = tuned_target("llvm-cpu")
    assert target.kernels == entry.cfg
    assert origin == {**dataclasses.asdict(entry.cfg), "from": "tuned"}
    tune("clear", "--op=cpu_kernels")
    assert tuned_target("llvm-cpu")[0].kernels == candidates[0]
