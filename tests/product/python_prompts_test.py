"""Python's prompts, stop strings and limits: lists of prompts, wrong types, answers that are cut off."""

import dataclasses
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tapeline
from lang_core import InputError
from tapeline.bundle import MARK, KernelConfig
from tapeline.running import LoadedModel
from tests.product import _bundles

demo_layer, demo_slots = _bundles.demo_layer, _bundles.demo_slots

_PROMPTS = ["zebra", "It was the best of times,", "x", "the tape of an op", "It was the best"]
_TEMPLATE = "{% for m in messages %}{{ m.content }}{% endfor %}"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("bundles")


@pytest.fixture(scope="module")
def model(folder: Path, demo_layer: Path) -> Iterator[LoadedModel]:
    path = Path(shutil.copytree(demo_layer, folder / "one"))
    (path / "chat_template.jinja").write_text(_TEMPLATE)
    with tapeline.load(path, device="local-sync") as loaded:
        yield loaded


@pytest.fixture(scope="module")
def slots(demo_slots: Path) -> Iterator[LoadedModel]:
    """Bundle that answers three prompts at once."""
    with tapeline.load(demo_slots, device="local-sync") as loaded:
        yield loaded


@pytest.fixture(scope="module", params=["model", "slots"])
def any_model(request: pytest.FixtureRequest) -> LoadedModel:
    return request.getfixturevalue(request.param)


@pytest.mark.parametrize("count", [0, 1, 2, 5])
def test_a_list_of_prompts_has_the_answer_to_each_alone(any_model: Any, count: int) -> None:
    options: Any = {"max_new_tokens": 7, "temperature": 0.9, "seed": 3}
    prompts = _PROMPTS[:count]
    alone = [any_model.generate(prompt, **options) for prompt in prompts]
    assert any_model.generate(prompts, **options) == alone
    assert any_model.generate(tuple(prompts), **options) == alone
    ids = [any_model.encode(prompt) for prompt in prompts]
    if count:
        assert any_model.generate(token_ids=ids, **options) == alone
        assert any_model.generate(token_ids=[np.array(one) for one in ids], **options) == alone
        assert any_model.generate(np.array(prompts), **options) == alone
    stream = any_model.stream(prompts, **options)
    tokens: list[list[int]] = [[] for _ in prompts]
    for token in stream:
        tokens[token.row].append(token.token_id)
    assert stream.answers == alone
    assert [[*answer.token_ids] for answer in alone] == tokens


def test_one_prompt_has_one_answer(any_model: Any) -> None:
    answer = any_model.generate("zebra", max_new_tokens=3)
    assert isinstance(answer, tapeline.Generation)
    assert any_model.generate(["zebra"], max_new_tokens=3) == [answer]
    ids = any_model.encode("zebra")
    for given_ids in (ids, tuple(ids), np.array(ids), np.array(ids, np.int32)):
        assert any_model.generate(token_ids=given_ids, max_new_tokens=3) == answer


def test_answers_come_as_a_list_in_any_number(any_model: LoadedModel) -> None:
    """The limit of each is that of the prompt alone."""
    long = "the tape " * 20
    for limit in (None, 5):
        expected = [any_model.generate(prompt, max_new_tokens=limit, ignore_eos=True) for prompt in ("x", long)]
        assert any_model.generate(["x", long], max_new_tokens=limit, ignore_eos=True) == expected


def test_a_prompt_that_does_not_fit_is_refused_before_a_token_is_made(any_model: LoadedModel) -> None:
    calls = any_model.counters.calls
    with pytest.raises(InputError, match="positions, the bundle's caches hold 96"):
        any_model.stream(["x", "y", "z", "the " * 100], max_new_tokens=4)
    assert any_model.counters.calls == calls


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"prompt": 5}, r"`prompt`: expected a text or a list of texts; got int \(5\)"),
        ({"prompt": b"abc"}, r"`prompt`: expected a text or a list of texts; got bytes \(b'abc'\)"),
        ({"prompt": {"a": 1}}, r"`prompt`: .* got dict"),
        ({"prompt": {"a", "b"}}, r"`prompt`: .* got set"),
        ({"prompt": ["a", 3]}, r"`prompt`: expected texts; entry 1 is int \(3\): give token ids as `token_ids`"),
        ({"prompt": [["a"]]}, r"`prompt`: expected texts; entry 0 is list"),
        ({"prompt": [None]}, r"`prompt`: expected texts; entry 0 is None"),
        ({"prompt": Path("a")}, r"`prompt`: .* got PosixPath"),
        ({"prompt": iter(["a"])}, r"`prompt`: .* got list_iterator"),
        ({}, "give either `prompt` or `token_ids`"),
        ({"prompt": ["a"], "token_ids": [1]}, "give either `prompt` or `token_ids`"),
        ({"token_ids": "1,2"}, r"`token_ids`: expected a list of token ids, or a list of .*; got str \('1,2'\)"),
        ({"token_ids": 7}, r"`token_ids`: .* got int \(7\)"),
        ({"token_ids": [1, 2.5]}, "`token_ids` has 2.5 at position 1, of type float: expected a token id, an integer"),
        ({"token_ids": [1, "2"]}, "`token_ids` has '2' at position 1, of type str"),
        ({"token_ids": [True]}, "`token_ids` has True at position 0, of type bool"),
        ({"token_ids": [[1], 2]}, r"`token_ids`: expected .*, or lists of them; entry 1 is int \(2\) beside lists"),
        ({"token_ids": np.ones(2, np.float32)}, "of type float32: expected a token id"),
        ({"token_ids": np.array(3)}, "`token_ids`: .* got ndarray"),
        ({"token_ids": [[[1]]]}, "of type list: expected a token id"),
        ({"prompt": "a", "max_new_tokens": "5"}, "max_new_tokens='5': expected an integer of at least 1, or None"),
        ({"prompt": "a", "max_new_tokens": 2.0}, r"max_new_tokens=2\.0: expected an integer"),
        ({"prompt": "a", "max_new_tokens": True}, "max_new_tokens=True: expected an integer"),
        ({"prompt": "a", "ignore_eos": "no"}, "ignore_eos: expected true or false; found 'no'"),
        ({"prompt": "a", "temperature": "hot"}, "temperature='hot' is out of range"),
        ({"prompt": "a", "logit_bias": [1, 2]}, r"logit_bias=\[1, 2\]: expected numbers by token id"),
        ({"prompt": "a", "stop": ""}, "stop='': expected a text that is not empty, or a list of such texts"),
        ({"prompt": "a", "stop": ["a", ""]}, "stop=.*: expected a text that is not empty"),
        ({"prompt": "a", "stop": 5}, "stop=5: expected a text that is not empty"),
        ({"prompt": "a", "stop": b"x"}, "stop=b'x': expected a text"),
        ({"prompt": "a", "stop": [5]}, r"stop=\[5\]: expected a text"),
        ({"prompt": "a", "stop": {"x": 1}}, "stop={'x': 1}: expected a text"),
    ],
)  # fmt: skip
def test_arguments_of_a_wrong_type_are_named(model: LoadedModel, arguments: dict[str, Any], message: str) -> None:
    for call in (model.generate, model.stream):
        with pytest.raises(InputError, match=message):
            call(**arguments)


def test_other_methods_name_the_type_too(model: Any, slots: Any) -> None:
    calls: dict[str, Any] = {
        r"`prompts`: expected a list of texts; got str \('ab'\): call `generate` or `stream` for one": (
            lambda: slots.generate_batch("ab")  # two prompts of a letter each, they would be
        ),
        r"`prompts`: expected texts; entry 0 is int \(1\): give token ids as `token_ids`": (
            lambda: slots.stream_batch([1])
        ),
        r"`token_ids`: expected a list of lists of token ids; got list \(\[1, 2\]\)": (
            lambda: slots.generate_batch(token_ids=[1, 2])
        ),
        r"`text`: expected a text; got list \(\['a'\]\)": lambda: model.chat().ask(["a"]),
        r"`text`: expected a text; got int \(5\)": lambda: model.score(5),
        r"`text`: expected a text; got bytes": lambda: model.encode(b"a"),
        r"`system`: expected a text; got int": lambda: model.chat(system=5),
        r"`token_ids` has \[1\] at position 0, of type list": lambda: model.score(token_ids=[[1], [2]]),
    }
    for message, call in calls.items():
        with pytest.raises(InputError, match=message):
            call()


def test_images_go_with_one_prompt(model: Any) -> None:
    with pytest.raises(InputError, match="`images` go with one prompt: call `generate` once for each"):
        model.generate(["a", "b"], images=[b"x"])


def _first_stop(text: str, stops: list[str]) -> int | None:
    """Returns where a text ends before a stop string, looked for at each place that one may be complete."""
    for end in range(1, len(text) + 1):
        starts = [end - len(stop) for stop in stops if text[:end].endswith(stop)]
        if starts:
            return min(starts)
    return None


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_an_answer_ends_before_the_first_stop_string(model: LoadedModel, data: st.DataObject) -> None:
    """Also one that is split across tokens; the text before it is that of the answer without stop strings."""
    options: Any = {"max_new_tokens": 20, "seed": data.draw(st.integers(0, 3)), "temperature": 0.9}
    whole = model.generate("zebra", **options)
    text = whole.text
    places = st.integers(0, len(text) - 1)
    part = places.flatmap(lambda at: st.integers(1, 5).map(lambda size: text[at : at + size]))
    stops = data.draw(st.lists(part | st.text("abqz", min_size=1, max_size=2), min_size=1, max_size=4))
    end = _first_stop(text, stops)
    pieces: list[str] = []
    answer = model.generate("zebra", stop=stops, on_token=lambda token: pieces.append(token.text), **options)
    assert answer.text == text[:end] == "".join(pieces)
    assert answer.ended == (whole.ended if end is None else "stop")
    assert answer.finish_reason == ("length" if answer.ended == "length" else "stop")
    assert answer.token_ids == whole.token_ids[: len(answer.token_ids)]
    if len(stops) == 1:
        assert model.generate("zebra", stop=stops[0], **options) == answer


def test_stop_strings_of_several_prompts(any_model: LoadedModel) -> None:
    options: Any = {"max_new_tokens": 20, "temperature": 0.9, "seed": 1}
    texts = [answer.text for answer in any_model.generate(_PROMPTS, **options)]
    stop = [texts[0][3:6], texts[2][1:3]]
    alone = [any_model.generate(prompt, stop=stop, **options) for prompt in _PROMPTS]
    assert any_model.generate(_PROMPTS, stop=stop, **options) == alone
    assert "stop" in [answer.ended for answer in alone]
    assert [answer.text for answer in alone] == [text[: _first_stop(text, stop)] for text in texts]


def test_an_answer_that_stopped_computes_no_more(any_model: LoadedModel) -> None:
    any_model.generate(_PROMPTS[:2], max_new_tokens=30)
    before = any_model.counters.calls
    any_model.generate(_PROMPTS[:2], max_new_tokens=30)
    whole = any_model.counters.calls - before
    first = [answer.text[:1] for answer in any_model.generate(_PROMPTS[:2], max_new_tokens=30)]
    before = any_model.counters.calls
    any_model.generate(_PROMPTS[:2], max_new_tokens=30, stop=first)
    assert any_model.counters.calls - before < whole - 20


def test_no_stop_strings_are_none(model: LoadedModel) -> None:
    expected = model.generate("zebra", max_new_tokens=5)
    for stop in (None, (), []):
        assert model.generate("zebra", max_new_tokens=5, stop=stop) == expected


def test_stop_strings_need_text(model: LoadedModel, folder: Path, tmp_path: Path) -> None:
    bundle = tmp_path / "bundle"
    shutil.copytree(folder / "one", bundle)
    config = KernelConfig.read(bundle / MARK)
    listed = dict(config.sha256)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (bundle / name).unlink()
        del listed[name]
    dataclasses.replace(config, sha256=listed).write(bundle / MARK)
    with (
        tapeline.load(bundle, device="local-sync") as plain,
        pytest.raises(InputError, match=r"`stop`: .* has no tokenizer, so its answers have no text: leave it out"),
    ):
        plain.generate(token_ids=[1, 2], stop="x")


def test_an_answer_of_a_conversation_goes_on_to_its_end(model: LoadedModel) -> None:
    """At most 1,024 tokens, and no more than the context has room for."""
    prompt = len(model.encode("zebra")) - 1  # a template writes its special tokens
    chat = model.chat()
    stream = chat.stream("zebra", ignore_eos=True)
    assert stream.limits == (96 - stream.prompt_tokens + 1,)
    assert stream.prompt_tokens in (prompt, prompt + 1)
    answer = model.chat().ask("zebra", ignore_eos=True)
    assert (len(answer.token_ids), answer.ended, answer.finish_reason) == (stream.limits[0], "length", "length")
    assert len(model.chat().ask("zebra", ignore_eos=True, max_new_tokens=5).token_ids) == 5
    with pytest.raises(InputError, match="the bundle's caches hold 96"):
        model.chat().ask("the " * 200)
    stopped = model.chat().ask("zebra", stop=answer.text[4:8])
    assert stopped.text == answer.text[: answer.text.index(answer.text[4:8])]
