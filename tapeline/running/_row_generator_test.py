"""A bundle with slots answers one prompt, or many, as a plain bundle does: by the engine, in the caller's thread."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tapeline
from lang_core import DeviceError, InputError
from tapeline.runners import BundleSlots

_PROMPT = "It was the best of times,"
_PROMPTS = [_PROMPT, f"{_PROMPT} it was the worst of times, it was", "the age of", _PROMPT]


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> tapeline.Bundle:
    folder = tmp_path_factory.mktemp("plain")
    return tapeline.export("demo", folder / "bundle", sequence=16, max_sequence=64, verify="none")


@pytest.fixture(scope="module")
def slots(tmp_path_factory: pytest.TempPathFactory) -> tapeline.Bundle:
    folder = tmp_path_factory.mktemp("slots")
    return tapeline.export("demo", folder / "bundle", slots=2, sequence=40, max_sequence=64, verify_tokens=4)


def test_answers_are_those_of_a_plain_bundle(plain: tapeline.Bundle, slots: tapeline.Bundle) -> None:
    with tapeline.load(plain.path) as one, tapeline.load(slots.path) as other:
        settings: list[Any] = [{}, {"temperature": 0.9, "seed": 3}, {"stop": "times"}]
        for options in settings:
            wanted = [one.generate(prompt, max_new_tokens=12, **options) for prompt in _PROMPTS]
            assert [other.generate(prompt, max_new_tokens=12, **options) for prompt in _PROMPTS] == wanted
            assert other.generate(_PROMPTS, max_new_tokens=12, **options) == wanted
            assert other.generate_batch(_PROMPTS, max_new_tokens=12, **options) == wanted


def test_each_end_is_told(slots: tapeline.Bundle) -> None:
    with tapeline.load(slots.path) as model:
        tokens = list(model.stream(_PROMPT, max_new_tokens=6, ignore_eos=True))
        assert [token.ended for token in tokens] == [None] * 5 + ["length"]
        assert [int(np.argmax(token.logits)) for token in tokens] == [token.token_id for token in tokens]
        with_end = _loaded_ends(model, tokens[3].token_id)
        ended = list(with_end.stream(_PROMPT, max_new_tokens=6))
        assert [token.ended for token in ended] == [None] * 3 + ["eos"]
        assert ended[3].token_id == tokens[3].token_id
    with pytest.raises(DeviceError, match="closed"):
        ended[3].logits.sum()


def _loaded_ends(model: Any, token_id: int) -> Any:
    """Returns the model with another end token, which the demo lacks."""
    stream = model._generator.stream
    model._generator.stream = lambda prompts, options, ends, *rest, **more: stream(
        prompts, options, frozenset({token_id}), *rest, **more
    )
    return model


def test_drafts_change_no_token(slots: tapeline.Bundle) -> None:
    text = "it was the age of wisdom, it was the age of"
    with tapeline.load(slots.path) as model:
        wanted = model.generate(text, max_new_tokens=16)
        assert model.stream(text, max_new_tokens=16).drafted == 0
    with tapeline.load(slots.path, speculate="prompt_lookup") as model:
        stream = model.stream(text, max_new_tokens=16)
        assert [*stream]
        assert stream.answers == [wanted]
        assert stream.drafted >= stream.accepted > 0


def test_scores_are_those_of_a_plain_bundle(plain: tapeline.Bundle, slots: tapeline.Bundle) -> None:
    text = _PROMPTS[1]
    with tapeline.load(plain.path) as one, tapeline.load(slots.path) as other:
        first = other.generate(text, max_new_tokens=4)
        wanted, scores = one.score(text), other.score(text)
        np.testing.assert_allclose(scores.log_probabilities, wanted.log_probabilities, rtol=1e-5)
        assert scores.token_ids == wanted.token_ids
        assert other.generate(text, max_new_tokens=4) == first
        with pytest.raises(InputError, match="scores need 2 tokens or more, found 1"):
            other.score(token_ids=[3])
        with pytest.raises(InputError, match="65 tokens, and the bundle's caches hold 64 positions"):
            other.score(token_ids=[3] * 65)


def test_a_prefix_is_not_run_again(slots: tapeline.Bundle) -> None:
    with tapeline.load(slots.path) as model:
        first = model.stream(_PROMPTS[1], max_new_tokens=4)
        assert ([*first][-1].ended, first.reused) == ("length", 0)
        again = model.stream(_PROMPTS[1], max_new_tokens=4)
        assert [*again]
        assert again.answers == first.answers
        assert again.reused > 8


def test_a_second_stream_ends_the_first(slots: tapeline.Bundle) -> None:
    with tapeline.load(slots.path) as model:
        wanted = model.generate(_PROMPT, max_new_tokens=8)
        first = model.stream(_PROMPT, max_new_tokens=30)
        next(first)
        assert model.generate(_PROMPT, max_new_tokens=8) == wanted
        with pytest.raises(InputError, match="this stream ended when another began on the same model"):
            next(first)


@pytest.mark.parametrize("error", [KeyboardInterrupt(), RuntimeError("the device is gone")])
def test_after_an_interrupted_call_answers_are_right(
    slots: tapeline.Bundle, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    decode = BundleSlots.decode
    with tapeline.load(slots.path) as model:
        wanted = model.generate(_PROMPT, max_new_tokens=8)
        stream = model.stream(_PROMPT, max_new_tokens=8)
        next(stream)

        def interrupted(self: Any, *given: Any) -> Any:
            decode(self, *given)
            raise error

        monkeypatch.setattr(BundleSlots, "decode", interrupted)
        with pytest.raises(type(error)):
            list(stream)
        monkeypatch.undo()
        assert model.generate(_PROMPT, max_new_tokens=8) == wanted


@pytest.mark.parametrize("kind", ["plain", "slots"])
def test_a_file_keeps_the_last_prompt(
    kind: str, plain: tapeline.Bundle, slots: tapeline.Bundle, tmp_path: Path
) -> None:
    path, file = (plain if kind == "plain" else slots).path, tmp_path / "cache"
    text = "it was the age of wisdom, it was"
    with tapeline.load(path) as model:
        count = len(model.encode(text))
        wanted = model.generate(text, max_new_tokens=9)
    for reused in (False, True):
        with tapeline.load(path, prompt_cache=file) as model:
            stream = model.stream(text, max_new_tokens=9)
            assert [*stream]
            assert stream.answers == [wanted]
            assert stream.reused == ((count - 1) // 8 * 8 if kind == "slots" else (count - 1) // 16 * 16) * reused


def test_what_rows_do_not_take_is_refused(slots: tapeline.Bundle) -> None:
    with pytest.raises(InputError, match="speculate=mtp: a multi-token prediction head works on one prompt"):
        tapeline.load(slots.path, speculate="mtp")
    with pytest.raises(InputError, match="draft_tokens=3 goes with `speculate` or `draft`"):
        tapeline.load(slots.path, draft_tokens=3)
    with tapeline.load(slots.path) as model:
        with pytest.raises(InputError, match=r"a prompt \(number 2\) of .* new ones need .* positions"):
            model.generate([_PROMPT, _PROMPT * 9], max_new_tokens=4)
        assert model.generate([], max_new_tokens=4) == []
