"""Report of the suite ``kernels`` on given figures."""

from typing import Any

from tools.benching.suites._figures import SuiteResult
from tools.benching.suites._kernels_suite import calls_report, gains_report, selection_report


def _chosen(choose: float, config: float, tier: str = "memory") -> dict[str, Any]:
    result = {"choose_us": choose, "choose_config_us": config, "tier": tier, "provenance": "tuned"}
    return {"attention": result}


def test_the_dearer_way_of_choosing_is_judged_in_every_process() -> None:
    result = SuiteResult("kernels")
    selection_report(result, {"alone": [_chosen(2, 9), _chosen(3, 11), _chosen(1, 9.5)], "jax": [_chosen(4, 10.5)]})
    assert [(goal.text, goal.measured.median, goal.met) for goal in result.goals] == [
        ("selection, attention; alone, µs", 9.5, True),
        ("selection, attention; jax, µs", 10.5, False),
    ]
    assert [case.values["choose"].median for case in result.tables[0].cases] == [2, 4]
    assert list(result.facts.values()) == [True]


def test_a_choice_that_was_no_memory_hit_is_told() -> None:
    result = SuiteResult("kernels")
    selection_report(result, {"alone": [_chosen(2, 9), _chosen(2, 9, "heuristics")]})
    assert result.facts == {"every choice is a memory hit of what was tuned": False}


def _call(ours: float, overhead: float, same: bool = True) -> dict[str, Any]:
    times = {"ours_us": ours, "direct_us": 10.0, "wrapped_us": 50.0, "module_us": 4.0}
    return times | {"overhead": overhead, "same": same}


def test_overheads_are_of_one_turn_and_bits_are_compared() -> None:
    result = SuiteResult("kernels")
    calls_report(
        result, {"small": [_call(10.4, 0.04), _call(30, 0.06), _call(9, -0.1)], "large": [_call(9, 0.2, False)]}
    )
    assert [(goal.text, goal.measured.median, goal.measured.maximum, goal.met) for goal in result.goals] == [
        ("small: over IREE directly, %", 4.0, 6.0, True),
        ("large: over IREE directly, %", 20.0, 20.0, False),
    ]
    assert [case.values["compiled kernel"].median for case in result.tables[0].cases] == [10.4, 9]
    assert result.facts == {"compiled kernel and IREE give the same bits": False}


def _gain(tuned: float, heuristic: float, tier: str = "persistent", itself: float = 1.01) -> dict[str, Any]:
    return {
        "itself": itself,
        "tuned_us": tuned,
        "heuristic_us": heuristic,
        "gain": heuristic / tuned,
        "tier": tier,
        "apart": 1e-7,
    }


def test_gains_are_shown_and_a_loss_beyond_noise_is_missed() -> None:
    result = SuiteResult("kernels")
    tunings = {
        "a": {"candidates": 7, "cfg": "form=online", "seconds": 3.0},
        "b": {"candidates": 2, "cfg": "form=direct", "seconds": 1.0},
    }
    gains_report(
        result, tunings, {"a": [_gain(4, 8), _gain(5, 8)], "b": [_gain(10, 9.8), _gain(10, 9.5), _gain(10, 9)]}
    )
    assert [(goal.text, round(goal.measured.median, 3), goal.met) for goal in result.goals] == [
        ("a: times faster than the heuristic", 1.8, True),
        ("b: times faster than the heuristic", 0.95, False),
    ]
    first = result.tables[0].cases[0].values
    assert (first["candidates"].median, first["seconds to tune"].median) == (7, 3)
    assert result.notes == ["What tuning chose: a: form=online; b: form=direct."]
    assert [goal.limit for goal in result.goals] == [0.97, 0.97]
    assert list(result.facts.values()) == [True]
    gains_report(result, tunings, {"b": [_gain(10, 9.5), _gain(10, 9.5, itself=1.0625), _gain(10, 9)]})
    assert (result.goals[-1].limit, result.goals[-1].met) == (0.9375, True), "noise was more than that"
    gains_report(result, tunings, {"a": [_gain(4, 8, "memory")]})
    assert list(result.facts.values()) == [False]
