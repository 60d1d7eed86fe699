"""Models whose keys depend on the length of the sequence: answers that cross a length are run anew there."""

from collections.abc import Sequence

import numpy as np
import pytest

from generation import Prediction, Sampler, SamplingConfig
from generation.engine import PromptEvent, TokenRequest, canonical_pieces
from generation.engine._hash_slots_testing import LengthHashSlots
from generation.engine._scheduler_testing import Bench

_ORIGINAL = 14
_CHUNKS = (2, 4, 16)


def _alone(request: TokenRequest, invariant: bool) -> list[int]:
    """Returns a request's new tokens from a model that runs a sequence anew when it crosses the length."""
    model = LengthHashSlots(_ORIGINAL, slots=1, chunks=_CHUNKS, invariant=invariant)
    history, prompt = list(request.prompt), len(request.prompt)
    sampler, prediction = Sampler(request.sampling, model.vocabulary), _filled(model, history)
    for _ in range(request.max_new_tokens):
        history.append(sampler.choose(prediction, history, prompt_tokens=prompt))
        if len(history) == _ORIGINAL + 1:
            prediction = _filled(model, history)
        else:
            prediction = model.decode([0], history[-1:], [len(history) - 1])[0]
    return history[prompt:]


def _filled(model: LengthHashSlots, tokens: Sequence[int]) -> Prediction:
    model.begin_row(0, np.array(tokens))
    start, prediction = 0, None
    for size in canonical_pieces(len(tokens), model.chunks):
        prediction = model.prefill_row(tokens[start : start + size], 0, start)
        start += size
    assert prediction
    return prediction


@pytest.mark.parametrize("invariant", [True, False])
@pytest.mark.parametrize("verify_tokens", [0, 3])
def test_answers_have_the_keys_of_their_lengths(invariant: bool, verify_tokens: int) -> None:
    model = LengthHashSlots(_ORIGINAL, chunks=_CHUNKS, invariant=invariant, verify_tokens=verify_tokens)
    bench = Bench(model, max_batched_tokens=8)
    random = np.random.default_rng(5)
    base = random.integers(0, 41, 30).tolist()
    for number in range(40):
        prompt = [*base[: random.integers(1, 25)], *random.integers(0, 41, random.integers(0, 4)).tolist()]
        sampling = SamplingConfig(temperature=0.9 if number % 2 else 0.0, seed=number)
        bench.put(prompt, int(random.integers(1, 20)), sampling=sampling)
        for _ in range(random.integers(0, 9)):
            bench.scheduler.tick()
    bench.run()
    crossed = 0
    for answer, received in bench.answers:
        request = answer.request
        tokens = [token for token, _, _ in received.tokens]
        assert tokens == _alone(request, invariant)
        assert sum(isinstance(event, PromptEvent) for event in received.events) == 1
        crossed += len(request.prompt) <= _ORIGINAL < len(request.prompt) + len(tokens) - 1
    assert crossed > 5
    assert bench.scheduler.figures().prefix_hits > 0


def test_scores_have_the_keys_of_the_whole_sequence() -> None:
    prompt = np.random.default_rng(6).integers(0, 41, _ORIGINAL).tolist()
    bench = Bench(LengthHashSlots(_ORIGINAL, verify_tokens=4))
    _, received = bench.put(prompt, 6, prompt_logprobs=0)
    answer, again = bench.put(prompt, 6)
    bench.run()
    assert received.prompt is not None
    assert len(received.prompt) == _ORIGINAL
    assert [token[0] for token in received.tokens] == [token[0] for token in again.tokens]
    assert [token[0] for token in again.tokens] == _alone(answer.request, invariant=True)
