"""The figures of a run whose times are made up."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tools.benching.suites._decode_report import Measured, report
from tools.benching.suites._decode_rows import Group, Row
from tools.benching.suites._decode_systems import System
from tools.benching.suites._decode_turns import BANDWIDTH, FIRST, LONG, PROMPT, SHORT
from tools.benching.suites._figures import SuiteResult
from tools.benching.suites._peer import Peer
from tools.benching.suites._plan import MIB, tiny_plan

OURS = Row("ours", ("--dtype=bf16",), peer="F16", decode=1.0, prefill=1.5, share=0.9, nmse=1e-3)
GROUP = Group("16 bits", (OURS,), ("F16", "BF16"))
REFERENCE = Measured(
    Group("32 bits", (Row("f32", ()),), ()), (), {SHORT: {BANDWIDTH: []}, LONG: {BANDWIDTH: []}}, {"f32": np.eye(3)}
)


def ours(**once: float) -> System:
    first = {"compile_seconds": 5.0, "load_seconds": 0.5, "long_prompt_seconds": 2.0, "peak_rss_bytes": 9 * MIB}
    memory = {"full_rss_bytes": 12 * MIB, "held_bytes": 10 * MIB, "mapped_bytes": 8 * MIB, "shared_bytes": 8 * MIB}
    return System("ours", OURS, None, Path(), 2_000_000_000, first | memory | once)


def theirs(kind: str) -> System:
    once = {"load_seconds": 0.25, "long_prompt_seconds": 4.0, "peak_rss_bytes": 7 * MIB}
    return System(f"llama.cpp {kind}", None, kind, Path(), 1_000_000_000, once)


def stepped(*seconds: float) -> list[dict[str, Any]]:
    """A round for each number, of three steps of which one was disturbed."""
    return [
        {
            "seconds": [entry, entry, 9 * entry],
            "outside_seconds": [5e-5, 6e-5, 1.0],
            "token_bytes": 8.0,
            "bytes_copied": 0.0,
        }
        for entry in seconds
    ]


def rounds(*names: str) -> dict[str, dict[str, list[dict[str, Any]]]]:
    speed = {"ours": (0.1, 0.2), "llama.cpp F16": (0.2, 0.1), "llama.cpp BF16": (0.4, 0.4)}
    steps = {name: stepped(*speed[name]) for name in names} | {BANDWIDTH: [{"bytes_per_second": 2e10}] * 2}
    prompts = {name: [{"seconds": entry, "finite": True} for entry in speed[name]] for name in names}
    first = [{"seconds": 1.0, "prompt_seconds": 0.75}, {"seconds": 1.5, "prompt_seconds": 0.75}]
    return {PROMPT: prompts, SHORT: steps, LONG: steps, FIRST: {"ours": first}}


def measured(logits: np.ndarray, *kinds: str, **once: float) -> SuiteResult:
    systems = [ours(**once), *map(theirs, kinds)]
    names = [entry.name for entry in systems]
    near = np.eye(3) * 1.02  # its squared error is 400 millionths
    measured = Measured(GROUP, systems, rounds(*names), {name: near if "llama" in name else logits for name in names})
    return report(tiny_plan(), [REFERENCE, measured])


def value(result: SuiteResult, table: int, case: str, column: str) -> tuple[float, float, float]:
    values = next(entry.values for entry in result.tables[table].cases if entry.name == case)
    return values[column].minimum, values[column].median, values[column].maximum


def test_ratios_are_taken_within_rounds() -> None:
    result = measured(np.eye(3), "F16", "BF16")
    assert value(result, 0, "ours", "tokens/s") == pytest.approx((5.0, 7.5, 10.0))
    assert value(result, 0, "ours", "GB/s") == pytest.approx((10.0, 15.0, 20.0))
    assert value(result, 0, "llama.cpp F16", "GB/s") == pytest.approx((5.0, 7.5, 10.0))
    assert value(result, 0, "ours", "of the memory's speed") == pytest.approx((0.5, 0.75, 1.0))
    assert value(result, 0, "ours", "times llama.cpp") == pytest.approx((0.5, 1.25, 2.0))
    assert value(result, 2, "ours", "times llama.cpp") == pytest.approx((0.5, 1.25, 2.0))
    assert value(result, 3, "ours", "µs of a step outside of the module") == pytest.approx((60, 60, 60))
    assert value(result, 3, "ours", "first token, without the prompt's arithmetic, s") == (0.25, 0.5, 0.75)
    assert value(result, 4, "ours", "over weights and caches") == pytest.approx((1.2, 1.2, 1.2))


def test_what_is_wanted_is_judged() -> None:
    goals = {goal.text: goal.met for goal in measured(np.eye(3), "F16").goals}
    assert goals == {
        "ours: decode, empty caches: times llama.cpp F16": True,
        "ours: decode, empty caches: of the memory's speed": False,
        "ours: decode, a long context: times llama.cpp F16": True,
        "ours: decode, a long context: of the memory's speed": False,
        "ours: prompt: times llama.cpp F16": False,
        "ours: full caches: peak memory over weights and caches": True,
        "ours: step outside of the module, µs": True,
        "ours: bytes copied per step, but for the token": True,
        "ours: tools:generate to the first token, without the prompt's arithmetic, s": True,
        "ours: logits: NMSE to f32, millionths": True,
        "ours: logits: NMSE to f32, times llama.cpp's": True,
    }


def test_logits_are_held_against_the_reference_and_the_peer() -> None:
    result = measured(np.eye(3) * 1.03, "F16")
    assert value(result, 5, "ours", "NMSE to f32, millionths") == pytest.approx((900,) * 3)
    assert value(result, 5, "llama.cpp F16", "NMSE to f32, millionths") == pytest.approx((400,) * 3)
    assert value(result, 5, "ours", "NMSE to f32, times llama.cpp's") == pytest.approx((2.25,) * 3)
    judged = {goal.text: goal.met for goal in result.goals}
    assert judged["ours: logits: NMSE to f32, millionths"]
    assert not judged["ours: logits: NMSE to f32, times llama.cpp's"]


def test_without_the_peer_nothing_is_held_against_it() -> None:
    result = measured(np.eye(3))
    assert not [goal for goal in result.goals if "llama.cpp" in goal.text]
    assert not [case for table in result.tables for case in table.cases if case.peer]


def test_a_peer_that_is_not_installed_has_a_row_that_says_so() -> None:
    plan = dataclasses.replace(tiny_plan(), peer=Peer("python", None))
    result = report(plan, [REFERENCE])
    assert all(table.cases[-1].name == "llama.cpp: not installed" and table.cases[-1].peer for table in result.tables)
    assert result.notes == [Peer("python", None).about()]


def test_another_model_or_pages_of_ones_own_are_seen() -> None:
    result = measured(np.eye(3)[::-1], "F16", shared_bytes=16 * MIB)
    assert result.facts == {
        "ours: logits are finite": True,
        "ours: two processes share the archive's pages": False,
        "ours: the logits are those of llama.cpp F16": False,
        "llama.cpp F16: logits are finite": True,
    }
    assert "ours: logits: NMSE to f32, millionths" in {goal.text for goal in result.goals if not goal.met}


def test_speeds_are_drawn() -> None:
    panels = measured(np.eye(3), "F16").panels
    assert [panel.column for panel in panels] == ["tokens/s"] * 3
    assert [case.name for case in panels[2].cases] == ["ours", "llama.cpp F16"]
