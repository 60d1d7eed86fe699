"""Ticks: what is held at every time, and what one tick may do."""

import os
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from generation import SamplingConfig
from generation.engine import EndEvent, PromptEvent, TokenEvent, TokenRequest, canonical_pieces
from generation.engine._answer import Answer
from generation.engine._hash_slots_testing import HashSlots
from generation.engine._reference_testing import alone
from generation.engine._scheduler_testing import Bench

_LONG = os.environ.get("TAPELINE_LONG") == "1"
_BUDGET = 6_000


class _Machine(RuleBasedStateMachine):
    """Requests come, leave, expire, and end."""

    kind = (True, False)

    def __init__(self) -> None:
        super().__init__()
        model = HashSlots(3, 40, 11, (2, 4, 8), invariant=self.kind[0], recurrent=self.kind[1])
        self.bench = Bench(model, store_bytes=_BUDGET, block_tokens=4, max_batched_tokens=9, target_itl=0.0)

    @rule(
        prompt=st.lists(st.integers(0, 2), min_size=1, max_size=20),
        count=st.integers(1, 9),
        wait=st.none() | st.integers(0, 5),
        scored=st.booleans(),
        client=st.sampled_from("ab"),
    )
    def submit(self, prompt: list[int], count: int, wait: int | None, scored: bool, client: str) -> None:
        expires = None if wait is None else self.bench.time + wait
        given = {"prompt_logprobs": 1} if scored and len(prompt) < 5 else {}
        self.bench.put(prompt, count, expires, client=client, ends=frozenset({7}), **given)

    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        if self.bench.answers:
            data.draw(st.sampled_from(self.bench.answers))[0].cancelled = True

    @rule(count=st.integers(1, 8))
    def tick(self, count: int) -> None:
        for _ in range(count):
            self.bench.time += 1.0
            gone = [answer for answer, _ in self.bench.answers if answer.leaves(self.bench.time)]
            self.bench.scheduler.tick()
            assert all(answer.reason for answer in gone)

    @invariant()
    def each_running_answer_has_one_row(self) -> None:
        running = [slot.answer for slot in self.bench.slots if slot.answer]
        assert len(running) == len(set(running))
        assert not [answer for answer in running if answer.reason]
        waiting = len(self.bench.queue)
        assert len(running) + waiting == sum(not received.ended for _, received in self.bench.answers)
        assert not waiting or len(running) < 3 or all(slot.answer for slot in self.bench.slots)

    @invariant()
    def events_are_in_order(self) -> None:
        for answer, received in self.bench.answers:
            kinds = [type(event) for event in received.events]
            assert kinds.count(EndEvent) == bool(answer.reason)
            assert PromptEvent not in kinds[1:]
            assert TokenEvent not in kinds[:1]

    @invariant()
    def the_store_keeps_its_budget(self) -> None:
        store = self.bench.store
        blocks, branches = list[Any](), list(store.roots.values())
        while branches:
            children = list(branches.pop().children.values())
            blocks += children
            branches += children
        assert len(blocks) == len(store)
        assert store.nbytes == sum(block.nbytes for block in blocks) <= _BUDGET

    def teardown(self) -> None:
        self.bench.run()
        assert all(received.ended for _, received in self.bench.answers)
        assert not any(slot.answer for slot in self.bench.slots)
        reasons = Counter(received.end.reason for _, received in self.bench.answers)
        assert self.bench.scheduler.figures().ended == reasons


@pytest.mark.parametrize("kind", [(True, False), (True, True), (False, False), (False, True)])
def test_states(kind: tuple[bool, bool]) -> None:
    machine: Any = type("_Machine", (_Machine,), {"kind": kind}).TestCase
    machine.settings = settings(max_examples=400 if _LONG else 25, stateful_step_count=40, deadline=None)
    machine().runTest()


def test_a_cancelled_answer_frees_its_row_within_one_step() -> None:
    bench = Bench(HashSlots(1))
    answer, received = bench.put([1, 2, 3], 50)
    bench.scheduler.tick()
    other = bench.put([4, 5], 2)[1]
    answer.cancelled = True
    calls = len(bench.model.calls)
    bench.scheduler.tick()
    assert received.end.reason == "cancelled"
    assert received.end.generated_tokens == 2
    assert bench.model.calls[calls:] == ["read_row", "prefill_row", "decode"]  # all of them for the other one
    assert other.ended


def test_a_deadline_ends_an_answer_where_it_is_and_one_that_waits() -> None:
    bench = Bench(HashSlots(1))
    first = bench.put([1, 2, 3], 50, expires=2.0)[1]
    second = bench.put([1, 2, 3], 50, expires=1.0)[1]
    for _ in range(3):
        bench.scheduler.tick()
        bench.time += 1.0
    assert [event.reason for event in (first.end, second.end)] == ["deadline", "deadline"]
    assert first.end.generated_tokens == 3
    assert second.events == [second.end]


def test_a_listener_that_raises_cancels_its_answer_and_no_other() -> None:
    bench = Bench(HashSlots(2))
    events: list[Any] = []

    def listen(event: Any) -> None:
        events.append(event)
        raise RuntimeError

    request = TokenRequest(prompt=[1], max_new_tokens=9, sampling=SamplingConfig())
    bench.queue.put(Answer(request, listen, bench.model.vocabulary, None))
    other = bench.put([2], 9)[1]
    bench.run()
    assert [type(event) for event in events].count(EndEvent) == 1
    assert events[-1].reason == "cancelled"
    assert other.end.reason == "length"


def test_a_tick_runs_whole_prompts_while_nobody_waits_for_it() -> None:
    bench = Bench(HashSlots(2), max_batched_tokens=64)
    bench.put(list(range(40)), 1)
    bench.scheduler.tick()
    assert bench.model.calls == ["prefill_row"] * 4


@pytest.mark.parametrize("kind", [{}, {"invariant": False}, {"recurrent": True}])
def test_answers_to_one_prompt_that_come_together_share_its_prefix(kind: dict[str, Any]) -> None:
    prompt = list(range(39))  # 16, 16, 4, 2, 1
    bench = Bench(HashSlots(4, **kind), max_batched_tokens=64, block_tokens=8)
    answers = [bench.put(prompt, 3, sampling=SamplingConfig(temperature=1, seed=seed))[1] for seed in range(4)]
    bench.run()
    assert [received.end.reused_tokens for received in answers] == [0, 38, 38, 38]
    assert bench.scheduler.figures().prompt_tokens == 39 + 3
    assert bench.model.calls.count("prefill_row") == 5 + 3
    assert len({tuple(received.tokens) for received in answers}) > 1


def test_tokens_of_a_tick_are_bounded() -> None:
    bench = Bench(HashSlots(2), max_batched_tokens=20)
    bench.put(list(range(40)), 1)
    bench.scheduler.tick()
    assert bench.slots[0].filled == bench.scheduler.figures().prompt_tokens == 16


@pytest.mark.parametrize(("largest", "calls"), [(None, 4), (5, 10), (1, 20)])
def test_prompts_are_cut_into_no_larger_chunks_than_are_wanted(largest: int | None, calls: int) -> None:
    bench = Bench(HashSlots(1, invariant=False), largest_chunk=largest)
    bench.put(list(range(40)), 1)
    bench.run()
    assert bench.model.calls == ["prefill_row"] * calls


@pytest.mark.parametrize("logprobs", [None, 2])
def test_greedy_choice_reads_logits_only_for_log_probabilities(logprobs: int | None) -> None:
    bench = Bench(HashSlots(2))
    before = HashSlots.reads
    bench.put([1, 2, 3], 6, logprobs=logprobs)
    bench.put([1, 2, 4], 6, logprobs=logprobs)
    bench.run()
    assert HashSlots.reads - before == (0 if logprobs is None else 12)


def test_log_probabilities_are_those_of_the_logits_before_sampling() -> None:
    bench = Bench(HashSlots(1))
    sampling = SamplingConfig(temperature=0.3, logit_bias={5: 9.0}, top_k=2, seed=1)
    received = bench.put([1, 2, 3], 1, logprobs=41, sampling=sampling)[1]
    bench.run()
    token_id, logprob, alternatives = received.tokens[0]
    logits = HashSlots(1).prefill_row([1, 2, 3], 0, 0).logits().astype(np.float64)
    expected = logits - np.log(np.exp(logits).sum())
    assert len(alternatives) == 41
    assert logprob == pytest.approx(expected[token_id], abs=1e-6)
    for other, value in alternatives:
        assert value == pytest.approx(expected[other], abs=1e-6)
    assert [value for _, value in alternatives] == sorted((value for _, value in alternatives), reverse=True)


def test_canonical_pieces_are_a_function_of_the_length() -> None:
    for length in range(1, 400):
        pieces = canonical_pieces(length, (8, 32, 128))
        assert sum(pieces) == length
        assert pieces == sorted(pieces, reverse=True)
        assert all(size in (8, 32, 128) for size in pieces[:-1])
        assert canonical_pieces(length + 128, (8, 32, 128)) == [128, *pieces]
        if len(pieces) > 1:
            assert canonical_pieces(length - pieces[0], (32, 8, 128)) == pieces[1:]


@pytest.mark.parametrize(("invariant", "verify_tokens", "calls"), [(True, 4, [4, 4, 3]), (True, 0, []), (False, 4, [])])
def test_scored_prompts_run_by_verify_row_if_the_bits_are_the_same(
    invariant: bool, verify_tokens: int, calls: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    prompt = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5]
    sizes: list[int] = []
    verify_row = HashSlots.verify_row

    def noted(self: HashSlots, token_ids: Sequence[int], row: int, position: int) -> Any:
        sizes.append(len(token_ids))
        return verify_row(self, token_ids, row, position)

    monkeypatch.setattr(HashSlots, "verify_row", noted)
    bench = Bench(HashSlots(invariant=invariant, verify_tokens=verify_tokens))
    _, received = bench.put(prompt, 3, prompt_logprobs=2, logprobs=1)
    bench.run()
    assert sizes == calls
    alone_model = HashSlots(invariant=invariant)
    tokens, reason, scored = alone(alone_model, bench.answers[0][0].request, ())
    assert (received.tokens, received.end.reason, received.prompt) == (tokens, reason, scored)
    assert bench.scheduler.figures().draft_tokens == 0
