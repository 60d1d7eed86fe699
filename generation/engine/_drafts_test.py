"""Drafts of rows: when they are made, and what happens where they cannot be."""

from collections.abc import Sequence
from typing import Any

import pytest

from generation import PromptLookup
from generation.engine import Drafting, ModelFailedError
from generation.engine._hash_slots_testing import HashSlots
from generation.engine._scheduler_testing import Bench
from lang_core import ConfigError


class _Asked:
    """Drafter that has no guess, and keeps what it was asked."""

    def __init__(self) -> None:
        self.counts: list[int] = []

    def propose(self, history: Sequence[int], count: int) -> Sequence[int]:
        self.counts.append(count)
        return ()


def test_drafts_are_no_longer_than_what_is_wanted_verified_and_left() -> None:
    asked = _Asked()
    bench = Bench(HashSlots(verify_tokens=5), Drafting(begin=lambda *_: asked))
    bench.put([1, 2, 3], 8)
    bench.run()
    assert asked.counts == [4, 4, 4, 3, 2, 1]
    asked.counts = []
    bench = Bench(HashSlots(verify_tokens=5), Drafting(begin=lambda *_: asked, tokens=2))
    bench.put([1, 2, 3], 5, prompt_logprobs=1)
    bench.run()
    assert asked.counts == [2, 2, 1]


def test_drafts_are_made_while_few_answers_run_and_each_has_its_own_drafter() -> None:
    asked: dict[int, list[_Asked]] = {}

    def begin(row: int, fresh: bool) -> _Asked:
        asked.setdefault(row, []).append(_Asked())
        return asked[row][-1]

    bench = Bench(HashSlots(2, verify_tokens=3), Drafting(begin=begin))
    bench.put([1, 2, 3], 4)
    bench.put([4, 5], 8)
    bench.run()
    [longer] = asked.values()  # the other one was never alone
    assert len(longer[0].counts) == 3
    bench = Bench(HashSlots(1, verify_tokens=3), Drafting(begin=begin, rows=2))
    asked.clear()
    bench.put([1, 2, 3], 4)
    bench.put([4, 5], 4)
    bench.run()
    assert len(asked[0]) == 2


def test_a_text_that_repeats_takes_fewer_calls() -> None:
    model = HashSlots(verify_tokens=4, scale=0.0)  # all logits are equal: token 0 for ever
    bench = Bench(model, Drafting(begin=lambda *_: PromptLookup()))
    _, received = bench.put([0, 0, 0, 0], 21)
    bench.run()
    assert [token for token, *_ in received.tokens] == [0] * 21
    assert model.calls.count("verify_row") == 5
    assert "decode" not in model.calls
    figures = bench.scheduler.figures()
    assert (figures.draft_tokens, figures.accepted_tokens, figures.generated_tokens) == (15, 15, 21)
    assert "draft" in figures.tick_seconds


def test_a_drafter_that_fails_is_a_failure_of_the_model() -> None:
    class Lost:
        def propose(self, history: Sequence[int], count: int) -> Sequence[int]:
            raise RuntimeError("the device is gone")

    bench = Bench(HashSlots(verify_tokens=4), Drafting(begin=lambda *_: Lost()))
    bench.put([1, 2], 4)
    with pytest.raises(ModelFailedError, match=r"the model's draft failed \(RuntimeError: the device is gone\)"):
        bench.run()


@pytest.mark.parametrize(
    ("model", "drafting", "message"),
    [
        (
            {"verify_tokens": 1},
            {},
            "a model that verifies 2 or more tokens a call; this one verifies 1: export",
        ),
        ({"verify_tokens": 4, "invariant": False}, {}, "a token's bits depend on the call that computes it"),
        ({"verify_tokens": 4}, {"tokens": 4}, "drafts of up to 4 tokens: expected 1 to 3, .* verify_tokens=5"),
        ({"verify_tokens": 4}, {"rows": 0}, "drafts: rows=0 is out of range: give at least 1"),
        ({"verify_tokens": 4}, {"tokens": 0}, "drafts: tokens=0 is out of range: give at least 1"),
    ],
)
def test_drafts_that_cannot_be_are_refused(model: Any, drafting: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Bench(HashSlots(**model), Drafting(begin=lambda *_: _Asked(), **drafting))
