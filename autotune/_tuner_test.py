"""What a tuner takes for faster."""

from typing import Any

import pytest

from autotune import Tuner


class Scripted(Tuner[int]):
    """Says what was written for each configuration, sample by sample."""

    def __init__(self, rounds: int, script: dict[int, list[float]]) -> None:
        super().__init__(warmup=0, iters=1, rounds=rounds)
        self.script = {cfg: list(samples) for cfg, samples in script.items()}
        self.order: list[int] = []

    def measure(self, fn: Any, *args: Any, **kwargs: Any) -> float:
        """The next one."""
        self.order.append(fn.cfg)
        return self.script[fn.cfg].pop(0)


class _Fn:
    def __init__(self, cfg: int) -> None:
        self.cfg = cfg

    def __call__(self) -> float:
        return 1.0


def _tuned(rounds: int, script: dict[int, list[float]]) -> tuple[Any, Scripted]:
    tuner = Scripted(rounds, script)
    found = tuner.tune(_Fn, (), {}, list(script))
    assert not any(tuner.script.values()), "everything was asked for"
    assert found.best is not None
    return found, tuner


@pytest.mark.parametrize(
    ("again", "best"),
    [
        ([0.5, 1.5, 1.5, 1.5, 0.5, 1.5], 0),  # the smallest is smaller, and most are not
        ([0.5, 1.5, 0.5, 0.6, 0.5, 1.5], 1),
        ([0.98, 0.99, 0.98, 0.98, 0.99, 0.98], 0),  # all are smaller, by less than noise
    ],
)
def test_the_fastest_has_to_win_most_turns_once_more(again: list[float], best: int) -> None:
    found, _ = _tuned(2, {0: [1.0] * 8, 1: [0.5, 0.6, *again]})
    assert found.best.cfg == best
    assert [each.cfg for each in found.measurements] == [0, 1]
    assert found.measurements[1].seconds == min(0.5, *again)
    assert found.measurements[1].detail == (
        "" if best else f"not confirmed: {min(again):.3g} s beside 1 s when timed again"
    )


def test_turns_go_there_and_back() -> None:
    _, tuner = _tuned(2, {0: [1.0] * 2, 1: [1.1] * 2, 2: [1.2] * 2})
    assert tuner.order == [0, 1, 2, 2, 1, 0]
    _, tuner = _tuned(1, {0: [1.0] * 2, 1: [1.1], 2: [0.5] * 2})
    assert tuner.order == [0, 1, 2, 0, 2], "of one round, one turn more"
