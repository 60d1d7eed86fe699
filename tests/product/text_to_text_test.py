"""Encoder-decoders from text to text: tokens, answers and languages are those of transformers' ``generate``."""

import os
from pathlib import Path
from typing import Any

import pytest

import tapeline
from lang_core import InputError
from run_iree import available, target_of_device
from tests.goldens.translation.files import read_answers, write_model
from tests.product._bundles import export, invoke

_DEVICE = os.environ.get("TAPELINE_DEVICE", "local-task")
_ANSWERS = read_answers()
# TAPELINE_LONG=1 in the environment asks for all.
_NAMES = [*_ANSWERS] if os.environ.get("TAPELINE_LONG") else ["mbart", "nllb"]
_END = {"t5": 1}
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
