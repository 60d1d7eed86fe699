"""Time that prompts take from running answers."""

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from generation.engine import Drafting, PromptPicture
from generation.engine._hash_slots_testing import HashSlots
from generation.engine._scheduler_testing import Bench


def test_prompts_hold_up_running_answers_for_one_call_at_a_time() -> None:
    bench = Bench(HashSlots(2, 96, chunks=(4, 16)), target_itl=0.0)
    clock = bench.model.prefill_row

    def slow(*given: Any) -> Any:
        bench.time += 0.01 * len(given[0])
        return clock(*given)

    bench.model.prefill_row = slow  # pyright: ignore[reportAttributeAccessIssue]
    bench.put([3], 90)
    bench.scheduler.tick()
    bench.put(list(range(40)), 3)
    del bench.model.calls[:]
    bench.scheduler.tick()
    bench.scheduler.tick()
    bench.scheduler.tick()
    # The first call of a size that was never measured is taken for free; then only the smallest is.
    assert bench.model.calls == ["prefill_row", "decode"] * 3
    assert [slot.filled for slot in bench.slots][1] == 16 + 4 + 4


class _SlowSlots(HashSlots):
    """A prompt's token takes 10 ms, a step 30 ms, a draft 60 ms, a copy of a row's entries 50 ms of a bench's time."""

    bench: Bench

    def prefill_row(self, token_ids: Any, row: int, position: int, embeddings: Any = None) -> Any:
        self.bench.time += 0.01 * len(token_ids)
        return super().prefill_row(token_ids, row, position, embeddings)

    def encode_image(self, pixels: Any) -> Any:
        self.bench.time += 0.05
        return super().encode_image(pixels)

    def decode(self, rows: Any, token_ids: Any, positions: Any) -> Any:
        self.bench.time += 0.03
        return super().decode(rows, token_ids, positions)

    def verify_row(self, token_ids: Any, row: int, position: int) -> Any:
        self.bench.time += 0.06
        return super().verify_row(token_ids, row, position)

    def read_row(self, row: int, start: int, stop: int) -> Any:
        self.bench.time += 0.05
        return super().read_row(row, start, stop)


def _slow_bench(drafting: Drafting | None = None, capacity: int = 96, **given: Any) -> Bench:
    model = _SlowSlots(2, capacity, 101, (1, 4, 16), verify_tokens=4)
    model.bench = Bench(model, drafting, **given)
    return model.bench


def _stalls(bench: Bench, ticks: int) -> list[int]:
    """Returns the milliseconds of ticks."""
    times = [bench.time]
    for _ in range(ticks):
        bench.scheduler.tick()
        times.append(bench.time)
    return [round(1000 * (after - before)) for before, after in pairwise(times)]


@pytest.mark.parametrize(("target_itl", "expected"), [(0.1, 100), (0.075, 70), (0.04, 50), (0.01, 40)])
def test_a_step_and_prompts_beside_it_keep_the_target_latency(target_itl: float, expected: int) -> None:
    bench = _slow_bench(target_itl=target_itl)
    bench.put([3], 90)
    bench.put(list(range(60)), 1)
    _stalls(bench, 4)  # every size is measured
    assert _stalls(bench, 3) == [expected] * 3


@pytest.mark.parametrize(
    ("target_itl", "call", "expected"),
    [
        (None, 0.0, 30 + 270),  # pieces of all sizes are as good
        (None, 0.015, 30 + 175 + 55),  # of 4, 1.26 times as long for a token as of 16; of 1, 2.3 times
        (None, 0.2, 30 + 360),  # of 16 alone
        (0.3, 0.2, 30 + 240),  # as was asked for
    ],
)
def test_by_default_pieces_are_not_so_small_that_they_take_much_longer(
    target_itl: float | None, call: float, expected: int
) -> None:
    bench = _slow_bench(capacity=400, target_itl=target_itl)
    prefill_row = bench.model.prefill_row

    def slower(*given: Any) -> Any:
        bench.time += call
        return prefill_row(*given)

    bench.model.prefill_row = slower  # pyright: ignore[reportAttributeAccessIssue]
    bench.put([3], 90)
    bench.put([5] * 390, 1)
    _stalls(bench, 4)  # every size is measured
    assert _stalls(bench, 2) == [expected] * 2


@pytest.mark.parametrize(("target_itl", "expected"), [(0.205, 200), (0.1, 120)])
def test_prompts_beside_a_draft_get_the_time_that_is_left(target_itl: float, expected: int) -> None:
    class Slow:
        def propose(self, history: Any, count: int) -> list[int]:
            bench.time += 0.01
            return [0] * count

    bench = _slow_bench(Drafting(begin=lambda *_: Slow()), target_itl=target_itl)
    bench.put([3], 90)
    bench.put(list(range(90)), 1)
    _stalls(bench, 4)  # every size is measured
    calls = len(bench.model.calls)
    assert _stalls(bench, 2) == [expected] * 2
    assert bench.model.calls[calls:].count("verify_row") == 2


def test_what_is_stored_for_a_new_answer_is_part_of_the_stall() -> None:
    bench = _slow_bench(target_itl=0.1)
    bench.put([3], 90)
    bench.put(list(range(9, 38)), 1)
    while len(bench.answers[1][1].events) < 3:
        bench.scheduler.tick()
    bench.put(list(range(50, 90)), 1)
    assert _stalls(bench, 2) == [50 + 20 + 30, 100]
    seconds = {part: times.seconds for part, times in bench.scheduler.figures().tick_seconds.items()}
    assert seconds["prefix"] == pytest.approx(0.05)
    assert seconds["decode"] == pytest.approx(0.03 * bench.model.calls.count("decode"))
    assert seconds["tick"] == pytest.approx(bench.time)
    assert seconds["choose"] == 0


def test_pictures_are_looked_at_one_by_one_while_others_run() -> None:
    bench = _slow_bench(target_itl=0.1)
    bench.put([3], 90)
    random = np.random.default_rng(2)
    pictures = [
        PromptPicture(pixels=random.standard_normal((3, 4, 2)).astype(np.float32), start=at, stop=at + 4)
        for at in (0, 4, 8)
    ]
    bench.put([7] * 12, 1, pictures=pictures)
    assert _stalls(bench, 5) == [130, 100, 100, 70, 30]  # what was never measured is taken for free
    seconds = bench.scheduler.figures().tick_seconds["encode"].seconds
    assert seconds == pytest.approx(0.15)
