"""Prefixes that outlive an engine: the next one reuses them, with the same answers."""

import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from generation import SamplingConfig
from generation.engine import (
    ArchivedBlock,
    EndEvent,
    Engine,
    EngineSettings,
    Event,
    PromptEvent,
    TokenEvent,
    TokenRequest,
)
from generation.engine._hash_slots_testing import HashSlots

_SETTINGS = EngineSettings(block_tokens=4, store_bytes=1 << 20)


class _Memory:
    """Archive in memory, which copies what it is given."""

    def __init__(self) -> None:
        self.kept: dict[str, list[ArchivedBlock]] = {}

    def load(self, rules: str) -> Sequence[ArchivedBlock]:
        return self.kept.get(rules, [])

    def save(self, rules: str, blocks: Sequence[ArchivedBlock]) -> None:
        copies = [[np.array(array) for array in one.arrays] for one in blocks]
        self.kept[rules] = [
            ArchivedBlock(one.salt, one.parent, one.tokens.copy(), arrays)
            for one, arrays in zip(blocks, copies, strict=True)
        ]


def answer(engine: Engine, prompt: Sequence[int], salt: str | None = "a") -> tuple[list[int], int]:
    """Returns an answer's tokens and the number of tokens that it reused."""
    events: list[Event] = []
    ended = threading.Event()

    def note(event: Event) -> None:
        events.append(event)
        if isinstance(event, EndEvent):
            ended.set()

    request = TokenRequest(prompt=prompt, sampling=SamplingConfig(), max_new_tokens=6, cache_salt=salt)
    engine.submit(request, note)
    assert ended.wait(20)
    (begun,) = [event for event in events if isinstance(event, PromptEvent)]
    return [event.token_id for event in events if isinstance(event, TokenEvent)], begun.reused


@pytest.mark.parametrize(
    "options", [{}, {"invariant": False}, {"recurrent": True}, {"recurrent": True, "invariant": False}]
)
def test_another_engine_reuses_them(options: dict[str, Any]) -> None:
    archive, prompts = _Memory(), [list(range(1, 40)), [*range(1, 20), *range(40, 20, -1)], list(range(40, 10, -1))]
    first = Engine(HashSlots(**options), _SETTINGS, archive=archive)
    expected = [answer(first, prompt)[0] for prompt in prompts]
    first.close()
    assert sum(map(len, archive.kept.values())) > 2
    second = Engine(HashSlots(**options), _SETTINGS, archive=archive)
    for prompt, tokens in zip(prompts, expected, strict=True):
        again, reused = answer(second, prompt)
        assert again == tokens
        assert reused > len(prompt) // 3
    assert answer(second, prompts[0], "b") == (expected[0], 0)
    assert answer(second, prompts[0], None) == (expected[0], 0)
    second.close()
    third = Engine(
        HashSlots(**{**options, "invariant": not options.get("invariant", True)}), _SETTINGS, archive=archive
    )
    assert answer(third, prompts[1])[1] == 0  # by other rules
    third.close()


def test_a_small_store_takes_what_fits() -> None:
    archive, prompt = _Memory(), list(range(1, 40))
    first = Engine(HashSlots(), _SETTINGS, archive=archive)
    tokens, _ = answer(first, prompt)
    first.close()
    second = Engine(HashSlots(), EngineSettings(block_tokens=4, store_bytes=6000), archive=archive)
    again, reused = answer(second, prompt)
    assert again == tokens
    assert 0 < reused < 30
    assert second.figures().store_bytes <= 6000
    second.close()
