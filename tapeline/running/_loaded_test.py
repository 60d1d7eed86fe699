import typing
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tapeline
from lang_core import InputError
from tapeline.running import GenerateKeywords, GenerateOptions, LoadedModel
from tapeline.running._scores import scores

_PROMPT = "It was the best of times,"
_SIZES: dict[str, Any] = {"sequence": 8, "max_sequence": 64, "verify": "none"}


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> tapeline.Bundle:
    points = ("prefill", "decode", "verify")
    return tapeline.export(
        "demo", tmp_path_factory.mktemp("demo") / "bundle", entry_points=points, verify_tokens=4, **_SIZES
    )


@pytest.fixture(scope="module")
def forward(tmp_path_factory: pytest.TempPathFactory) -> tapeline.Bundle:
    return tapeline.export(
        "demo", tmp_path_factory.mktemp("forward") / "bundle", entry_points=["forward"], sequence=16, verify="none"
    )


@pytest.fixture(scope="module")
def model(bundle: tapeline.Bundle) -> typing.Iterator[LoadedModel]:
    with tapeline.load(bundle.path) as loaded:
        yield loaded


def test_keywords_are_the_fields_of_the_options() -> None:
    hints = typing.get_type_hints(GenerateOptions)
    names = [option.name for option in fields(GenerateOptions)]
    assert typing.get_type_hints(GenerateKeywords) == {name: hints[name] for name in names}
    assert list(GenerateKeywords.__annotations__) == names


def test_a_stream_is_the_answer_in_pieces(model: LoadedModel) -> None:
    seen: list[tapeline.GeneratedToken] = []
    answer = model.generate(_PROMPT, max_new_tokens=12, on_token=seen.append)
    stream = model.stream(_PROMPT, max_new_tokens=12)
    tokens = list(stream)
    assert "".join(token.text for token in tokens) == answer.text == "".join(token.text for token in seen)
    assert [token.token_id for token in tokens] == answer.token_ids
    assert [token.ended for token in tokens] == [None] * 11 + ["length"]
    assert answer.ended == "length"
    assert stream.answers == [answer]
    ids = model.encode(_PROMPT)
    assert stream.prompt_tokens == len(ids)
    assert model.generate(token_ids=ids, max_new_tokens=12) == answer
    assert answer.text.startswith(" it was the worst")


def test_sampling_repeats_with_its_seed(model: LoadedModel) -> None:
    first, again, other = (
        model.generate(_PROMPT, max_new_tokens=12, temperature=2.0, seed=seed).text for seed in (1, 1, 2)
    )
    assert first == again != other


def test_logits_are_read_on_demand(model: LoadedModel) -> None:
    before = model.counters.bytes_copied
    for token in model.stream(_PROMPT, max_new_tokens=3):
        assert token.logits.shape == (model.vocabulary,)
        assert int(token.logits.argmax()) == token.token_id
    assert model.counters.bytes_copied > before


def test_a_second_stream_ends_the_first(model: LoadedModel) -> None:
    first = model.stream(_PROMPT, max_new_tokens=5)
    next(first)
    assert model.generate(_PROMPT, max_new_tokens=2).token_ids
    with pytest.raises(InputError, match="this stream ended when another began on the same model"):
        next(first)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "give either `prompt` or `token_ids`"),
        ({"prompt": "a", "token_ids": [1]}, "give either `prompt` or `token_ids`"),
        (
            {"prompt": "a", "temprature": 1.0},
            r"unknown option 'temprature': known are temperature(, \w+){4} \.\.\. \(\d+ in all\); did you mean",
        ),
        ({"prompt": "a", "max_new_tokens": 0}, "max_new_tokens=0 is out of range"),
        ({"prompt": "a", "max_new_tokens": 100}, "the bundle's caches hold 64"),
        ({"token_ids": [1, 512]}, "`token_ids` has token id 512 at position 1"),
    ],
)
def test_arguments_that_are_refused(model: LoadedModel, given: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        model.generate(**given)


def test_a_text_that_the_model_knows_scores_better(model: LoadedModel) -> None:
    known, scrambled = model.score(_PROMPT + " it was the worst"), model.score("worst the was it" + _PROMPT)
    assert known.perplexity < 2 < scrambled.perplexity
    assert known.log_probabilities.shape == (len(known.token_ids) - 1,)
    assert (known.log_probabilities <= 0).all()
    assert known.total == pytest.approx(known.log_probabilities.sum())


def test_scores_are_the_same_by_every_entry_point(
    bundle: tapeline.Bundle, forward: tapeline.Bundle, tmp_path: Path
) -> None:
    plain = tapeline.export("demo", tmp_path / "plain", **_SIZES)
    ids = [0, 34, 268, 378, 5, 9, 77]
    values = []
    for folder in (bundle, forward, plain):
        with tapeline.load(folder) as model:
            values.append(model.score(token_ids=ids).log_probabilities)
            assert "prefill" not in [e.name for e in folder.config.entry_points] or model.generate(
                "the", max_new_tokens=2
            )
    np.testing.assert_allclose(values[1], values[0], rtol=1e-4)
    np.testing.assert_allclose(values[2], values[0], rtol=1e-4)


def test_scores_that_are_refused(model: LoadedModel, forward: tapeline.Bundle) -> None:
    with pytest.raises(InputError, match="give either `text` or `token_ids`"):
        model.score()
    with pytest.raises(InputError, match="scores need 2 tokens or more, found 1"):
        model.score(token_ids=[5])
    with pytest.raises(InputError, match=r"65 tokens, and the bundle's caches hold 64 .* export with max_sequence=65"):
        model.score(token_ids=[5] * 65)
    with (
        tapeline.load(forward) as short,
        pytest.raises(InputError, match=r"17 tokens, and the bundle takes 16: .* export with sequence=17"),
    ):
        short.score(token_ids=[5] * 17)


def test_log_probabilities_are_those_of_a_softmax() -> None:
    logits = np.log(np.array([[0.5, 0.25, 0.25], [0.1, 0.2, 0.7]], np.float32))
    result = scores([0, 1, 2], iter(logits))
    np.testing.assert_allclose(result.log_probabilities, np.log([0.25, 0.7]), rtol=1e-6)
    assert result.perplexity == pytest.approx((0.25 * 0.7) ** -0.5)


def test_an_entry_point_runs_on_named_arrays(forward: tapeline.Bundle) -> None:
    ids = np.arange(16, dtype=np.int32)[None]
    with tapeline.load(forward) as model:
        assert model.run("forward", {"token_ids": ids})["logits"].shape == (1, 16, 512)
        with pytest.raises(InputError, match=r"'forward' has no argument 'tokens_ids'; did you mean 'token_ids'\?"):
            model.run("forward", {"tokens_ids": ids})
        with pytest.raises(InputError, match="`input` is missing for token_ids"):
            model.run("forward", {})
        with pytest.raises(InputError, match="embeds no sentences"):
            model.embed(["a"])
        with pytest.raises(InputError, match="generation needs prefill and decode: export with entry_points=prefill"):
            model.generate("a")


def test_a_closed_model_refuses(bundle: tapeline.Bundle) -> None:
    with tapeline.load(bundle, device="local-sync") as model:
        assert model.device == "local-sync"
    with pytest.raises(tapeline.TapelineError):
        model.generate("a")


def test_a_bundle_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is not a bundle"):
        tapeline.load(tmp_path)


def test_a_conversation_is_not_for_every_bundle(model: LoadedModel) -> None:
    with pytest.raises(InputError, match=r"has no chat template.*or continue a plain text: generate without `chat`"):
        model.chat()
