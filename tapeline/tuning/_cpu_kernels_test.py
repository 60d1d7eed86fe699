"""CPU kernels that are remembered for this machine, and the target that takes them."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from autotune import PINNED, PersistentCache
from autotune.iree_compiler import CpuKernelsKernel, remembered_kernels
from run_iree import target_named
from run_iree.kernels import CpuKernels
from tapeline.tuning import cfg_text, find_entry, pin_entry, tuned_target

_TABLE = target_named("llvm-cpu").kernels or CpuKernels()


@pytest.fixture
def cache(tmp_path: Path) -> PersistentCache[Any]:
    return PersistentCache(path=tmp_path / "k.json")


def test_what_is_remembered_is_taken_by_the_next_compilation(cache: PersistentCache[Any]) -> None:
    before, origin = tuned_target("llvm-cpu", cache)
    assert before.kernels == _TABLE
    assert origin == {**dataclasses.asdict(_TABLE), "from": "table"}
    farthest = max(_TABLE.candidates(), key=lambda kernels: kernels.ahead)
    cache.put(*remembered_kernels(cache).key[:3], farthest)
    after, origin = tuned_target("llvm-cpu", cache)
    assert after == dataclasses.replace(before, kernels=farthest)
    assert origin is not None
    assert (origin["from"], origin["ahead"]) == ("tuned", farthest.ahead)


def test_kernels_are_pinned_by_hand_where_the_cpu_has_them(cache: PersistentCache[Any]) -> None:
    selection = remembered_kernels(cache)
    assert (selection.tier, selection.cfg) == ("heuristics", _TABLE)
    cache.put(*selection.key[:3], CpuKernels(), PINNED)
    entry = dataclasses.replace(
        find_entry(cache, "cpu_kernels", None),
        kernel=f"{CpuKernelsKernel.__module__}:{CpuKernelsKernel.__qualname__}",
    )
    assert pin_entry(cache, entry, '{"ahead": 3456}').cfg == CpuKernels(ahead=3456)
    _, origin = tuned_target("llvm-cpu", cache)
    assert origin is not None
    assert (origin["ahead"], origin["from"]) == (3456, "pinned")
    assert "ahead=3456" in cfg_text(CpuKernels(ahead=3456))


def test_a_target_without_kernels_has_none_to_tune(cache: PersistentCache[Any]) -> None:
    assert tuned_target("vmvx", cache) == (target_named("vmvx"), None)
