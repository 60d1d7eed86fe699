"""Entries of a cache, found, shown, pinned and removed."""

import json
from pathlib import Path
from typing import Any

import pytest

from autotune import (
    PINNED,
    CacheEntry,
    Key,
    Measurement,
    PersistentCache,
    host_environment,
)
from autotune.supplied import GatedDeltaConfig, SoftmaxConfig, SoftmaxKernel
from lang_core import InputError
from tapeline.tuning import (
    as_json,
    cfg_text,
    clear_entries,
    entries_text,
    explanation,
    find_entry,
    list_entries,
    open_cache,
    pin_entry,
)

_KERNEL = "autotune.supplied._norms:SoftmaxKernel"


def _entry(call: str, device: str = "", source: str = "", **fields: Any) -> CacheEntry[Any]:
    measurements = (
        Measurement(SoftmaxConfig(), 3e-3),
        Measurement(SoftmaxConfig("log"), 1.5e-3),
        Measurement(SoftmaxConfig("reciprocal"), float("inf"), "failed", "ValueError: no"),
    )
    key = Key(device or host_environment().fingerprint, "softmax@v0", call, source)
    specs = {"mapping": [["x", {"array": [[2, 3], "float32"]}], ["scale", {"float": (0.5).hex()}]]}
    return CacheEntry(key, SoftmaxConfig("log"), "tuned", measurements, {"cpu": "a CPU"}, specs, _KERNEL, **fields)


def test_a_cache_is_opened_and_listed_by_op(cache: PersistentCache[Any], tmp_path: Path) -> None:
    again = open_cache(str(tmp_path / "k.json"))
    assert again.path == cache.path
    assert [entry.key for entry in list_entries(again)] == [entry.key for entry in cache.entries()]
    assert {entry.key.call for entry in list_entries(again, "softmax")} == {"aa11", "ab22"}
    assert list_entries(again, "softmax") == list_entries(again, "softmax@v0")
    assert list_entries(again, "soft") == []


@pytest.fixture
def cache(tmp_path: Path) -> PersistentCache[Any]:
    cache: PersistentCache[Any] = PersistentCache(path=tmp_path / "k.json")
    cache.store(_entry("aa11"))
    cache.store(_entry("ab22"))
    cache.put("elsewhere|cpu|x", "gated_delta_rule@v0", "cc33", GatedDeltaConfig(16))
    return cache


def test_an_entry_is_found_by_op_and_the_first_digits_of_its_call(cache: PersistentCache[Any]) -> None:
    assert find_entry(cache, "softmax", "ab").key.call == "ab22"
    assert find_entry(cache, "gated_delta_rule@v0", None).cfg == GatedDeltaConfig(16)
    with pytest.raises(InputError, match=r"2 entries match: give more of op and call: softmax@v0 aa11 .*ab22"):
        find_entry(cache, "softmax", "a")
    with pytest.raises(InputError, match=r"call=zz: not in .*k.json"):
        find_entry(cache, None, "zz")
    with pytest.raises(InputError, match=r"op=softmx: not in .*; available: gated_delta_rule@v0, softmax@v0; did you"):
        find_entry(cache, "softmx", None)


def test_a_table_has_times_and_gains(cache: PersistentCache[Any]) -> None:
    rows = [" ".join(line.split()) for line in entries_text(cache.entries()).splitlines()]
    assert rows[1].startswith("gated_delta_rule@v0 cc33 elsewhere|cpu tuned chunk=16 - -")
    assert rows[2] == "softmax@v0 aa11 numpy|cpu tuned form=log 1.5 ms x2.00 x=float32[2,3], scale=0.5"
    assert entries_text([]) == "nothing is remembered\n"


@pytest.mark.parametrize(
    ("entry", "holds"),
    [
        (_entry("a"), "yes: the persistent tier gives it"),
        (_entry("a", source=SoftmaxKernel.class_source()), "yes: the persistent tier gives it"),
        (_entry("a", source="another"), "no: the kernel's source changed since"),
        (_entry("a", device="numpy|cpu|another"), "no: cpu, device, versions, flags, mesh differ here"),
        (_entry("a", device="recorded|cpu|x"), "not known: calls of recorded say themselves"),
    ],
    ids=["by hand", "same source", "other source", "other device", "recording"],
)
def test_an_explanation_says_whether_the_entry_applies_here(entry: CacheEntry[Any], holds: str) -> None:
    lines = [" ".join(line.split()) for line in explanation(entry).splitlines()]
    assert any(line.startswith(f"holds here {holds}") for line in lines)
    assert lines[-3:] == ["form=divide 3 ms", "* form=log 1.5 ms", "form=reciprocal failed: ValueError: no"]


def test_an_entry_set_by_hand_has_no_candidates(cache: PersistentCache[Any]) -> None:
    assert explanation(find_entry(cache, "gated_delta_rule", None)).endswith("nobody measured: it was set by hand\n")


def test_pinning_keeps_or_sets_the_configuration(cache: PersistentCache[Any]) -> None:
    entry = find_entry(cache, "softmax", "aa")
    assert pin_entry(cache, entry, '{"form": "reciprocal"}').cfg == SoftmaxConfig("reciprocal")
    pinned = find_entry(cache, "softmax", "aa")
    assert (pinned.cfg, pinned.provenance) == (SoftmaxConfig("reciprocal"), PINNED)
    assert pin_entry(cache, pinned, None).cfg == SoftmaxConfig("reciprocal")
    with pytest.raises(InputError, match=r'cfg=\{: not JSON \(.*\): write it as \{"form": "log"\}'):
        pin_entry(cache, entry, "{")
    with pytest.raises(InputError, match=r'not a SoftmaxConfig \(.*\): write it as \{"form": "log"\}'):
        pin_entry(cache, entry, '{"from": "log"}')
    with pytest.raises(InputError, match="of the kernel of an unknown class, which is not loaded"):
        pin_entry(cache, find_entry(cache, "gated_delta_rule", None), None)


def test_removing_all_entries_those_of_an_op_or_one(cache: PersistentCache[Any]) -> None:
    assert clear_entries(cache, "softmax", "aa") == 1
    assert clear_entries(cache, "softmax", None) == 1
    assert clear_entries(cache, None, None) == 1
    assert cache.size() == 0


def test_json_has_no_time_of_a_failed_candidate() -> None:
    fields = json.loads(json.dumps(as_json(_entry("a"))))
    assert [row["seconds"] for row in fields["measurements"]] == [3e-3, 1.5e-3, None]
    assert (fields["gain"], fields["call"]) == (2.0, "a")
    assert cfg_text((1, 2)) == '{"__tuple__": [1, 2]}'
