"""Trials of candidates: the caller's arrays, sinks and records stay as they are, and slow candidates end early."""

import math
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from autotune import (
    AutotunePolicy,
    ConfigSelectorChain,
    Executor,
    Invocation,
    Kernel,
    Tuner,
    forget_invocations,
    profile,
    recorded_calls,
)
from lang_core import EagerExecutionContext, ExecutionContext


class _Candidates(Kernel[int, Any]):
    """Kernel with the configurations 1, 2 and 3; the first is the heuristic one."""

    def heuristic_cfg(self, inv: Invocation[int, Any]) -> int:
        return 1

    def candidate_cfgs(self, inv: Invocation[int, Any]) -> list[int]:
        return [1, 2, 3]


class Accumulate(_Candidates):
    """Adds x to the first row of c, in place."""

    op_id = "tests.accumulate"

    def run(self, c: Any, x: Any, *, cfg: int) -> Any:
        c[0] += x
        return c


def _quick() -> ConfigSelectorChain[Any, Any]:
    return ConfigSelectorChain(tuner=Tuner(warmup=1, iters=2, rounds=2))


def _statuses(chain: ConfigSelectorChain[Any, Any], kernel: Kernel[Any, Any], *args: Any) -> dict[Any, tuple[str, str]]:
    """Returns status and detail of each candidate; the chain has tuned this call."""
    entry = chain.select(Invocation(kernel.op_id, args), kernel).entry
    assert entry is not None
    return {measurement.cfg: (measurement.status, measurement.detail) for measurement in entry.measurements}


def test_candidates_write_to_copies() -> None:
    c, x = np.zeros((2, 3), np.float32), np.ones(3, np.float32)
    chain = _quick()
    result = Executor(chain)(Accumulate(), c, x)
    assert result is c
    np.testing.assert_array_equal(c, [[1, 1, 1], [0, 0, 0]])
    assert [status for status, _ in _statuses(chain, Accumulate(), c, x).values()] == ["ok"] * 3
    Executor(chain)(Accumulate(), c, x)
    np.testing.assert_array_equal(c[0], [2, 2, 2])


def test_aliases_containers_and_dataclasses_are_copied_as_what_they_are() -> None:
    @dataclass
    class State:
        total: Any

    class Aliased(_Candidates):
        op_id = "tests.aliased"

        def run(self, arrays: Any, same: Any, state: Any, *, cfg: int, named: Any) -> Any:
            assert arrays[0] is same
            arrays[0][...] += 1
            state.total += 1
            named["x"][0] = 7
            arrays.append(None)
            return arrays[0].sum() + same.sum()

    arrays, state, named = [np.zeros((3, 2))], State(np.zeros(4)), {"x": np.zeros(5)[::2]}
    assert Executor(_quick())(Aliased(), arrays, arrays[0], state, named=named) == 12
    assert (len(arrays), arrays[0].max(), state.total.max(), named["x"].max()) == (2, 1, 1, 7)


def test_a_candidate_that_writes_something_else_to_its_arguments_is_rejected() -> None:
    class Careless(_Candidates):
        op_id = "tests.careless"

        def run(self, x: Any, *, cfg: int) -> Any:
            result = x * 2
            if cfg > 1:
                x[0] = 0
            return result

    chain, x = _quick(), np.ones((4, 3), np.float32)
    Executor(chain)(Careless(), x)
    np.testing.assert_array_equal(x, 1)
    statuses = _statuses(chain, Careless(), x)
    assert statuses[1] == ("ok", "")
    assert statuses[2] == statuses[3] == ("rejected", "writes to argument array 0, the reference writes to none")


def test_a_tuner_called_by_hand_and_a_tuner_of_ones_own_get_copies() -> None:
    class First:
        def autotune(self, make_fn: Any, args: Any, kwargs: Any, candidates: Any) -> Any:
            make_fn(candidates[0])(*args, **kwargs)
            return candidates[0]

    c, x = np.zeros((2, 3), np.float32), np.ones(3, np.float32)
    own: ConfigSelectorChain[Any, Any] = ConfigSelectorChain(tuner=First())  # pyright: ignore[reportArgumentType]
    assert own.choose(Invocation("tests.accumulate", (c, x)), Accumulate()) == 1
    Tuner(rounds=1).tune(lambda cfg: lambda c, x: Accumulate().run(c, x, cfg=cfg), (c, x), {}, [1, 2])
    np.testing.assert_array_equal(c, 0)


class Tagged(_Candidates):
    """Negates, tags the result, and calls another kernel."""

    op_id = "tests.tagged"
    shown: list[bool]

    def run(self, x: Any, *, cfg: int, ctx: ExecutionContext) -> Any:
        inner = Executor(ConfigSelectorChain(policy="heuristics"))(Inner(), x, ctx=ctx)
        return ctx.tag(ctx.ops.negate(inner), "y")


class Inner(_Candidates):
    """Copies."""

    op_id = "tests.inner"

    def run(self, x: Any, *, cfg: int, ctx: ExecutionContext) -> Any:
        return ctx.ops.mul(x, 1.0)


def test_one_call_gives_one_tag_one_profile_entry_and_one_record(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TAPELINE_OPS_RECORD_FILE", str(tmp_path / "calls.jsonl"))
    monkeypatch.setenv("TAPELINE_OPS_RECORD", "1")
    forget_invocations()
    tags: list[str] = []
    ctx = EagerExecutionContext(tag_sink=lambda name, tensor: tags.append(name.rpartition(".")[2]))
    with profile() as calls:
        Executor(_quick())(Tagged(), np.ones((2, 3), np.float32), ctx=ctx)
    assert tags == ["y"]
    assert [call.label.partition("@")[0].partition("#")[2] for call in calls] == ["tests.inner", "tests.tagged"]
    assert [call.op_id for call in recorded_calls()] == ["tests.tagged", "tests.inner"]
    ctx.tag(ctx.constant(1.0), "z")
    assert tags == ["y", "z"], "the context has its sink again"
    forget_invocations()


class Constant(_Candidates):
    """Returns a value by configuration."""

    def __init__(self, *values: Any) -> None:
        super().__init__(f"tests.constant.{values}")
        self.values = values

    def run(self, x: Any, *, cfg: int) -> Any:
        return self.values[cfg - 1]


def _array(*numbers: float) -> Any:
    return np.array(numbers, np.float32)


@pytest.mark.parametrize(
    ("values", "statuses", "detail"),
    [
        (
            (_array(1, 2), _array(math.nan, math.nan), _array(1, 2)),
            ["ok", "rejected", "ok"],
            "NaNs are at other places",
        ),
        (
            (_array(1, math.nan), _array(1, math.nan), _array(1, 2)),
            ["ok", "ok", "rejected"],
            "NaNs are at other places",
        ),
        ((1.0, math.nan, 1.0), ["ok", "rejected", "ok"], "nan, the reference has 1.0"),
        (((_array(1), 3), (_array(1), 4), [_array(1), 3]), ["ok", "rejected", "rejected"], "the reference has"),
        ((_array(0), _array(-0.0), _array(1)), ["ok", "ok", "rejected"], "differs by"),
    ],
    ids=["all of one", "some of both", "a number", "values beside arrays", "zeros"],
)
def test_comparison_sees_nan(values: Any, statuses: list[str], detail: str) -> None:
    chain, kernel = _quick(), Constant(*values)
    chosen = _statuses(chain, kernel, np.zeros(1))
    assert [status for status, _ in chosen.values()] == statuses
    assert all(detail in why for status, why in chosen.values() if status != "ok")


@pytest.mark.parametrize("nothing", [_array(math.nan, math.nan), (_array(1), _array(math.nan)), math.nan])
def test_where_every_value_is_nan_nothing_can_be_compared(nothing: Any) -> None:
    chain, kernel = _quick(), Constant(nothing, nothing, nothing)
    selection = chain.select(Invocation(kernel.op_id, (np.zeros(1),)), kernel)
    assert (selection.cfg, selection.tier) == (1, "heuristics")
    assert "every value is NaN, so nothing can be compared" in dict(selection.passed)["autotune"]


def test_bit_exact_counts_what_differs_in_its_bits() -> None:
    chain = _quick()
    chain.policy = AutotunePolicy(bit_exact=True)
    assert _statuses(chain, Constant(_array(0, 1), _array(-0.0, 1), _array(0, 1)), np.zeros(1))[2] == (
        "rejected",
        "1 of 2 elements differ, and they may not",
    )


class Paced(_Candidates):
    """Waits for a time by configuration, and counts its runs."""

    op_id = "tests.paced"

    def __init__(self, *seconds: float) -> None:
        super().__init__()
        self.seconds = seconds
        self.runs = dict.fromkeys(range(1, len(seconds) + 1), 0)

    def run(self, x: Any, *, cfg: int) -> Any:
        self.runs[cfg] += 1
        time.sleep(self.seconds[cfg - 1])
        return x + 1

    def candidate_cfgs(self, inv: Invocation[int, Any]) -> list[int]:
        return list(self.runs)


def _tuned(kernel: Paced, **options: Any) -> Any:
    chain: ConfigSelectorChain[Any, Any] = ConfigSelectorChain(tuner=Tuner(**options))
    entry = chain.select(Invocation(kernel.op_id, (np.zeros(2),)), kernel).entry
    assert entry is not None
    return entry


def test_a_candidate_that_is_slower_than_the_best_runs_twice() -> None:
    kernel = Paced(0.001, 0.3, 0.0005)
    entry = _tuned(kernel)
    assert kernel.runs[2] == 2
    slow = entry.measurements[1]
    assert (slow.status, slow.detail) == ("ok", "more than twice as slow as the fastest: not timed again")
    assert slow.seconds >= 0.3


def test_a_slow_heuristic_is_not_timed_beside_a_fast_candidate_for_long() -> None:
    kernel = Paced(0.3, 0.0005)
    assert _tuned(kernel).cfg == 2
    assert kernel.runs[1] <= 4


def test_a_tuning_ends_when_its_time_is_spent() -> None:
    kernel = Paced(*[0.06, 0.058, 0.056, 0.055, 0.054, 0.053])
    entry = _tuned(kernel, budget=0.3)
    assert sum(kernel.runs.values()) <= 9
    assert entry.cfg in kernel.runs
    details = {measurement.detail for measurement in entry.measurements if measurement.status == "skipped"}
    assert details == {"not timed: the time budget of 0.3 s was spent"}
    assert [m.status for m in entry.measurements if m.cfg == 1] == ["ok"], "the reference is always timed"
    assert all(m.status == "ok" for m in _tuned(Paced(0.06, 0.05), budget=None, rounds=1).measurements)
