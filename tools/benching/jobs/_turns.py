"""Lets functions take turns within a measured process."""

import random
import time
from collections.abc import Callable, Mapping
from typing import Any

_SETTLE = 3  # calls of each before anything counts


def in_turns(
    calls: Mapping[str, Callable[[], Any]], repeats: int, sample_s: float, seed: int = 0
) -> dict[str, list[float]]:
    """Times functions in turns, in orders that change: every other turn is the one before it backwards.

    Args:
        calls: by name.
        repeats: turns.
        sample_s: about how long the quickest one's sample lasts, in seconds; all are called equally often in a turn.
        seed: of the order.

    Returns:
        Per function the seconds of a call, turn by turn.
    """
    quickest = min([min(_timed(call, 1) for call in calls.values()) for _ in range(_SETTLE)])
    number = max(1, round(sample_s / max(quickest, 1e-9)))
    order, shuffled = list(calls), random.Random(seed)
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    for turn in range(repeats):
        if turn % 2 == 0:
            shuffled.shuffle(order)
        for name in order if turn % 2 == 0 else reversed(order):
            seconds[name].append(_timed(calls[name], number))
    return seconds


def _timed(call: Callable[[], Any], number: int) -> float:
    began = time.perf_counter()
    for _ in range(number):
        call()
    return (time.perf_counter() - began) / number
