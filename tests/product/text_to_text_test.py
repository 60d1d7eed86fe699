"""Encoder-decoders from text to text: tokens, answers and languages are those of transformers' ``generate``."""

import os
from functools import partial
from pathlib import Path
from typing import Any

import openai
import pytest

import tapeline
from lang_core import InputError
from run_iree import available, target_of_device
from tapeline.backends import Place
from tapeline.server import Loading, ModelSource, load_bundle
from tapeline.server._server_testing import running
from tests.goldens.translation.files import read_answers, write_model
from tests.product._bundles import export, invoke

_DEVICE = os.environ.get("TAPELINE_DEVICE", "local-task")
_ANSWERS = read_answers()
# TAPELINE_LONG=1 in the environment asks for all.
_NAMES = [*_ANSWERS] if os.environ.get("TAPELINE_LONG") else ["mbart", "nllb"]
_END = {"t5": 1, "t5gemma": 1}
pytestmark = pytest.mark.skipif(not available(_DEVICE)[0], reason=str(available(_DEVICE)[1]))


@pytest.fixture(scope="module", params=_NAMES)
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    directory = tmp_path_factory.mktemp(request.param)
    write_model(directory, _ANSWERS[request.param])
    target = (target_of_device(_DEVICE),)
    path = export(directory, directory / "bundle", target=target, sequence=48, max_sequence=32, verify="none")
    return request.param, path


def test_answers(model: tuple[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    name, path = model
    with tapeline.load(path, device=_DEVICE) as loaded:
        assert loaded.translates
        for known in _ANSWERS[name]["answers"]:
            languages = dict(zip(("source_language", "target_language"), known["languages"], strict=False))
            options: dict[str, Any] = {"max_new_tokens": None, **known["options"], **languages}
            answer = loaded.generate(known["text"], **options)
            tokens = known["tokens"]
            ended = tokens[-1] == _END.get(name, 2)
            assert answer.token_ids == tokens[: len(tokens) - ended]
            assert (answer.text, answer.ended) == (known["answer"], "eos" if ended else "length")
            languages.pop("source_language", None)
            options |= {**languages, "source_language": None}
            assert loaded.generate(token_ids=known["source"], **options) == answer
    known = _ANSWERS[name]["answers"][0]
    flags = [f"--{key}={value}" for key, value in known["options"].items()]
    if known["languages"]:
        flags += [f"--source_language={known['languages'][0]}", f"--target_language={known['languages'][1]}"]
    done = invoke("generate", capsys, f"--bundle={path}", f"--device={_DEVICE}", f"--prompt={known['text']}", *flags)
    assert done.code == 0, done.err
    assert done.out == f"{known['answer']}\n"


def test_several_texts_stop_strings_and_samples(model: tuple[str, Path]) -> None:
    name, path = model
    answers = _ANSWERS[name]["answers"]
    first, last = answers[0]["text"], answers[-1]["text"]
    languages = dict(zip(("source_language", "target_language"), answers[0]["languages"], strict=False))
    with tapeline.load(path, device=_DEVICE) as loaded:
        options: Any = {"num_beams": 1, "max_new_tokens": 8, **languages}
        alone = [loaded.generate(text, **options) for text in (first, last)]
        assert loaded.generate([first, last], **options) == alone
        whole = alone[0].text
        assert loaded.generate(first, stop=whole[2:4], **options).text == whole.partition(whole[2:4])[0]
        drawn = [loaded.generate(first, temperature=2.0, seed=seed, **options).token_ids for seed in (1, 1, 2)]
        assert drawn[0] == drawn[1] != drawn[2]


@pytest.mark.parametrize("beams", [1, 3])
def test_a_check_ends_a_stream_before_its_next_step(model: tuple[str, Path], beams: int) -> None:
    name, path = model
    calls: list[int] = []

    def check() -> None:
        calls.append(len(calls))
        if len(calls) == 3:
            raise InterruptedError

    text = _ANSWERS[name]["answers"][0]["text"]
    options: Any = {"num_beams": beams, "max_new_tokens": 9, "ignore_eos": True}
    with tapeline.load(path, device=_DEVICE) as loaded:
        whole = loaded.generate(text, **options)
        with pytest.raises(InterruptedError):
            list(loaded.stream(text, check=check, **options))
        assert loaded.generate(text, **options) == whole
    assert len(calls) == 3


def test_the_server_answers_for_openais_client(model: tuple[str, Path]) -> None:
    name, path = model
    place = Place(device=_DEVICE)
    with running([ModelSource(name, lambda: load_bundle(name, tapeline.Bundle(path), Loading(place=place)))]) as server:
        client = openai.OpenAI(base_url=f"http://127.0.0.1:{server.port}/v1", api_key="none", max_retries=0)
        ask = partial(client.completions.create, model=name)
        for known in _ANSWERS[name]["answers"]:
            options = dict(known["options"])
            languages = dict(zip(("source_language", "target_language"), known["languages"], strict=False))
            most = options.pop("max_new_tokens", None)
            answer = ask(prompt=known["text"], max_tokens=most, extra_body={**options, **languages})
            ended = known["tokens"][-1] == _END.get(name, 2)
            assert (answer.choices[0].text, answer.choices[0].finish_reason) == (
                known["answer"],
                "stop" if ended else "length",
            )
            assert answer.usage is not None
            assert answer.usage.prompt_tokens == len(known["source"])
            assert answer.usage.completion_tokens == len(known["tokens"])
        known = _ANSWERS[name]["answers"][0]
        languages = dict(zip(("source_language", "target_language"), known["languages"], strict=False))
        sampled: Any = {"temperature": 2.0, "seed": 3, "top_p": 0.9}
        answer = ask(prompt=known["text"], max_tokens=8, **sampled, extra_body=languages)
        with pytest.raises(openai.BadRequestError, match="`num_beams`: beam search does not go with `temperature`"):
            ask(prompt="the cat", temperature=0.5, extra_body={"num_beams": 3})
        with pytest.raises(openai.BadRequestError, match=r"a source of 60 tokens: .* encodes 1 to 48"):
            ask(prompt=[5] * 60, max_tokens=9)
        with pytest.raises(openai.BadRequestError, match="is an encoder-decoder, which answers texts at /v1/comp"):
            client.chat.completions.create(model=name, messages=[{"role": "user", "content": "the cat"}])
        client.close()
    with tapeline.load(path, device=_DEVICE) as loaded:
        assert answer.choices[0].text == loaded.generate(known["text"], max_new_tokens=8, **sampled, **languages).text


def test_refusals(model: tuple[str, Path]) -> None:
    name, path = model
    known = (
        "is no language of .*; known are " if name in ("mbart", "nllb") else ": the tokenizer of .* has no languages"
    )
    with tapeline.load(path, device=_DEVICE) as loaded:
        with pytest.raises(InputError, match=rf"source_language='xx_XX' ?{known}"):
            loaded.generate("the cat", source_language="xx_XX")
        with pytest.raises(InputError, match="`num_beams`: beam search does not go with `temperature`"):
            loaded.generate("the cat", num_beams=3, temperature=0.5)
        with pytest.raises(InputError, match=r"a source of 60 tokens: .* encodes 1 to 48; export with sequence=60"):
            loaded.generate(token_ids=[5] * 60, max_new_tokens=9)
        with pytest.raises(InputError, match="a start of an answer of 1 tokens and 40 new ones need 40 positions"):
            loaded.generate("the cat", max_new_tokens=40)
        stream = loaded.stream("the cat", num_beams=2, max_new_tokens=3)
        with pytest.raises(InputError, match="beam search keeps no logits"):
            _ = next(stream).logits
