import asyncio
import threading
from collections.abc import Awaitable, Sequence
from typing import Any

import numpy as np
import pytest

from lang_core import InputError
from tapeline.running import TextArray
from tapeline.server._text_batches import TextBatches, TextSettings
from tapeline.server._turns import SerialExecutor
from tapeline.text import EncodedText

PLAIN = TextSettings()


class Model:
    """Model of which a text is as long as its vector says; its first call waits for ``go_on``."""

    def __init__(self) -> None:
        self.calls: list[list[str]] = []
        self.began, self.go_on = threading.Event(), threading.Event()

    def __call__(self, texts: Sequence[str], settings: TextSettings) -> TextArray:
        self.calls.append(list(texts))
        if len(self.calls) == 1:
            self.began.set()
            assert self.go_on.wait(60)
        if "broken" in texts:
            raise RuntimeError("the device is lost")
        for text in texts:
            if text.startswith("long") and not settings.truncate:
                raise InputError(f"{text!r} is too long")
        lengths = np.array([[len(text)] for text in texts], np.float32)
        return TextArray.of(lengths, [EncodedText([0] * len(text), [0] * len(text), len(text)) for text in texts])


def _gathered(
    model: Model, first: Sequence[str], others: Sequence[tuple[Sequence[str], TextSettings]], most: int = 64
) -> list[Any]:
    """Returns results or errors of requests; the others come while the first one's call runs."""

    async def run() -> list[Any]:
        batches = TextBatches(SerialExecutor(), model, most)
        asked: list[Awaitable[TextArray]] = [asyncio.ensure_future(batches.result(first, PLAIN))]
        await asyncio.to_thread(model.began.wait, 60)
        asked += [asyncio.ensure_future(batches.result(texts, settings)) for texts, settings in others]
        await _settled()
        model.go_on.set()
        return await asyncio.gather(*asked, return_exceptions=True)

    return asyncio.run(run())


async def _settled() -> None:
    """Lets each task that is ready run until it waits."""
    for _ in range(100):
        await asyncio.sleep(0)


def test_requests_that_come_during_a_call_share_the_next_one() -> None:
    model = Model()
    others = [([str(place) * (1 + place)], PLAIN) for place in range(9)]
    results = _gathered(model, ["first"], others)
    assert model.calls == [["first"], [texts[0] for texts, _ in others]]
    assert [result.tolist() for result in results] == [[[5.0]], *([[1.0 + place]] for place in range(9))]
    assert [result.tokens.tolist() for result in results] == [[5], *([1 + place] for place in range(9))]
    assert [result.truncated.tolist() for result in results] == [[5], *([1 + place] for place in range(9))]


def test_a_request_with_many_texts_holds_up_no_other() -> None:
    model = Model()
    many = [f"many {place}" for place in range(30)]
    results = _gathered(model, ["first"], [(many, PLAIN), (["a"], PLAIN), (["b", "c"], PLAIN)], most=8)
    assert {"a", "b", "c"} <= set(model.calls[1])
    assert all(len(call) <= 8 for call in model.calls)
    assert sorted(text for call in model.calls for text in call) == sorted(["first", *many, "a", "b", "c"])
    assert results[1].ravel().tolist() == [len(text) for text in many]


def test_requests_that_come_later_do_not_wait_for_all_texts_of_the_first() -> None:
    model = Model()
    many = [f"many {place}" for place in range(30)]
    _gathered(model, many, [(["a"], PLAIN)], most=8)
    assert "a" in model.calls[1]


def test_other_settings_have_calls_of_their_own_in_turn() -> None:
    model = Model()
    query, strict = TextSettings("query"), TextSettings(truncate=False)
    many = [f"many {place}" for place in range(12)]
    others = [(many, PLAIN), (["a"], query), (["b"], strict), (["c"], query)]
    results = _gathered(model, ["first"], others, most=4)
    assert [call for call in model.calls if not call[0].startswith("many")] == [["first"], ["a", "c"], ["b"]]
    assert model.calls.index(["b"]) < len(model.calls) - 1
    assert [len(result) for result in results] == [1, 12, 1, 1, 1]


def test_a_text_that_is_refused_fails_its_own_request_only() -> None:
    model = Model()
    strict = TextSettings(truncate=False)
    results = _gathered(model, ["first"], [(["a"], strict), (["b", "long"], strict), (["c"], strict)])
    assert [len(result) if isinstance(result, TextArray) else str(result) for result in results] == [
        1,
        1,
        "'long' is too long",
        1,
    ]


def test_a_call_that_fails_fails_every_request_of_it() -> None:
    results = _gathered(Model(), ["first"], [(["a"], PLAIN), (["broken"], PLAIN)])
    assert len(results[0]) == 1
    assert [str(result) for result in results[1:]] == ["the device is lost"] * 2


def test_a_request_that_is_cancelled_leaves_the_others() -> None:
    async def run() -> list[Any]:
        model = Model()
        batches = TextBatches(SerialExecutor(), model)
        first = asyncio.ensure_future(batches.result(["first"], PLAIN))
        await asyncio.to_thread(model.began.wait, 60)
        others = [asyncio.ensure_future(batches.result([text], PLAIN)) for text in ("a", "b", "c")]
        await _settled()
        first.cancel()
        others[1].cancel()
        await _settled()
        model.go_on.set()
        results = await asyncio.gather(first, *others, return_exceptions=True)
        assert ["b"] not in model.calls
        return results

    results = asyncio.run(run())
    assert [isinstance(result, asyncio.CancelledError) for result in results] == [True, False, True, False]


@pytest.mark.parametrize("most", [1, 3, 64])
def test_drawn_requests(most: int) -> None:
    """Each request has the rows of its texts, whatever it shares calls with."""
    random = np.random.default_rng(most)

    def drawn() -> list[str]:
        return ["x" * int(random.integers(0, 30)) for _ in range(int(random.integers(1, 20)))]

    settings = [PLAIN, TextSettings("query")]
    others = [(drawn(), settings[int(random.integers(2))]) for _ in range(40)]
    model = Model()
    results = _gathered(model, drawn(), others, most)
    for (texts, _), result in zip(others, results[1:], strict=True):
        assert result.ravel().tolist() == [len(text) for text in texts]
    assert max(map(len, model.calls)) <= most
