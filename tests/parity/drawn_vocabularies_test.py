"""Tokenizers of GGUF files give llama.cpp's ids (``tests/goldens/make_vocabulary_goldens.py``).

The long mode compares 2,000 texts for each vocabulary live, if llama_cpp can be imported or TAPELINE_REFERENCE_PYTHON
names a Python that can import it.
"""

import contextlib
import functools
import importlib.util
import itertools
import json
import os
import re
import subprocess
import sys
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from tokenizers import Tokenizer

from lang_core import CheckpointError
from tapeline.text import Tokenizer as DirectoryTokenizer
from tapeline.text import UnreadTokenizerError, gguf_tokenizer, write_gguf_tokenizer
from tests.goldens.drawn_vocabularies import (
    SPLITTINGS,
    SURROUNDED,
    Vocabulary,
    flagged,
    spelled,
    texts,
    tied,
    untyped,
    vocabularies,
)
from tests.goldens.golden_files import DATA

_GOLDEN: dict[str, Any] = json.loads((DATA / "drawn_vocabularies.json").read_text())
_LONG = 2_000
_SEED = 1_000


def _changes_case(text: str) -> bool:
    return any(before.islower() and after.isupper() for before, after in itertools.pairwise(text))


def _departs_in_case(text: str) -> bool:
    """Returns whether a text changes the case, or has a mark of a letter before punctuation."""
    marked = any(
        unicodedata.category(before)[0] == "M" and unicodedata.category(after)[0] in "PS"
        for before, after in itertools.pairwise(text)
    )
    return marked or _changes_case(text)


def _has_numbers(text: str) -> bool:
    return _changes_case(text) or re.search(r"\d", text) is not None


# Where llama.cpp departs from the pattern of the model's own tokenizer.json, which is the one here: it knows no upper
# and lower case beyond ASCII, or none at all; takes marks of letters (Hindi's vowels) for punctuation; no border of
# words in what lies ahead; no wide space; and strips white space of ASCII alone.
_DEPARTS: dict[str, Callable[[str], bool]] = {
    **dict.fromkeys(
        (
            *("gpt2-tekken", "gpt2-gpt-4o", "gpt2-llama4", "gpt2-minimax-m2", "gpt2-kanana2", "gpt2-talkie"),
            *("gpt2-granite-embed-multi-97m", "gpt2-kimi-k2", "gpt2-youtu"),
        ),
        _departs_in_case,
    ),
    **dict.fromkeys(("gpt2-tiny_aya", "gpt2-cohere2moe"), _has_numbers),
    "gpt2-afmoe": lambda text: re.search(r"\s[\d½]", text) is not None,
    "gpt2-deepseek-llm": lambda text: "\u3000" in text,
    "phi3": lambda text: re.search("[\u00a0\u3000]", text) is not None,
}


@functools.cache
def _vocabularies() -> dict[str, Vocabulary]:
    return {vocabulary.name: vocabulary for vocabulary in (*vocabularies(), *flagged())}


def _metadata(vocabulary: Vocabulary) -> dict[str, Any]:
    return {"general.architecture": vocabulary.architecture} | {
        key if key.startswith("general.") else f"tokenizer.ggml.{key}": value
        for key, value in vocabulary.fields.items()
    }


def _made(vocabulary: Vocabulary) -> tuple[Tokenizer, dict[str, Any]]:
    made = gguf_tokenizer(_metadata(vocabulary), "some.gguf")
    assert made is not None
    return made


def _tokenizer(name: str) -> Tokenizer:
    return _made(_vocabularies()[name])[0]


@contextlib.contextmanager
def _reference(*arguments: int | str) -> Iterator[Iterator[dict[str, Any]]]:
    """Gives what llama.cpp answers, or skips the test."""
    if "TAPELINE_REFERENCE_PYTHON" not in os.environ and importlib.util.find_spec("llama_cpp") is None:
        pytest.skip("llama_cpp cannot be imported: name a Python that has it in TAPELINE_REFERENCE_PYTHON")
    python = os.environ.get("TAPELINE_REFERENCE_PYTHON", sys.executable)
    command = [python, "-m", "tests.goldens.make_vocabulary_goldens", *map(str, arguments)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        yield map(json.loads, process.stdout)
    assert process.returncode == 0


def _differences(answer: dict[str, Any], drawn: list[str]) -> tuple[int, list[str]]:
    """Returns how many texts were compared, and what differs."""
    name = answer["name"]
    tokenizer, departs = _tokenizer(name), _DEPARTS.get(name)
    differences: list[str] = []
    compared = 0
    for text, expected in zip(drawn, answer["ids"], strict=True):
        if departs is not None and departs(text):
            continue
        compared += 1
        actual = tokenizer.encode(text, add_special_tokens=False).ids
        if actual != expected:
            differences.append(f"{name}: {text!r}: expected {expected}; found {actual}")
    return compared, differences


@pytest.mark.parametrize("answer", _GOLDEN["answers"], ids=lambda answer: answer["name"])
def test_ids_are_llama_cpps(answer: dict[str, Any]) -> None:
    compared, differences = _differences(answer, texts(0, len(answer["ids"])))
    assert differences == []
    assert compared > len(answer["ids"]) // 6


# Where the space of the file's own flag is not llama.cpp's, which puts one before every word that it takes spaces from.
_SPACED: Final = "t5:add_space_prefix=False"


@pytest.mark.parametrize("answer", _GOLDEN["flagged"], ids=lambda answer: answer["name"])
def test_tokens_around_texts_are_llama_cpps(answer: dict[str, Any]) -> None:
    tokenizer = _tokenizer(answer["name"])
    ids = [tokenizer.encode(text).ids for text in SURROUNDED]
    assert (ids == answer["ids"]) is (answer["name"] != _SPACED)


def test_every_vocabulary_has_its_golden() -> None:
    assert {answer["name"] for answer in (*_GOLDEN["answers"], *_GOLDEN["flagged"])} == {*_vocabularies()}
    assert {f"gpt2-{pre}" for pre in SPLITTINGS} <= {*_vocabularies()}


def test_no_id_is_beyond_the_vocabulary() -> None:
    for name, vocabulary in _vocabularies().items():
        tokenizer = _tokenizer(name)
        assert tokenizer.get_vocab_size(with_added_tokens=True) == len(vocabulary.fields["tokens"]), name


_DRAWS: Final = {"tied": tied, "spelled": spelled}


def _compared(answers: Iterable[dict[str, Any]]) -> tuple[list[str], int, int]:
    """Returns what differs, how many vocabularies were compared, and how many were refused."""
    differences: list[str] = []
    compared = refused = 0
    for answer in answers:
        kind, _, seed = answer["name"].partition("-")
        vocabulary, drawn = _DRAWS[kind](int(seed))
        try:
            tokenizer, _ = _made(vocabulary)
        except UnreadTokenizerError:
            refused += 1
            continue
        compared += 1
        for text, expected in zip(drawn, answer["ids"], strict=True):
            actual = tokenizer.encode(text, add_special_tokens=False).ids
            if actual != expected:
                differences.append(f"{vocabulary.name}: {text!r}: expected {expected}; found {actual}")
    return differences, compared, refused


def test_equal_scores_merge_as_in_llama_cpp_or_are_refused() -> None:
    differences, compared, refused = _compared(_GOLDEN["tied"])
    assert differences == []
    assert compared > refused > 0


def test_letters_that_are_no_tokens_are_merged_as_in_llama_cpp_or_refused() -> None:
    differences, compared, refused = _compared(_GOLDEN["spelled"])
    assert differences == []
    assert compared > refused > 0


def test_all_scores_equal_are_refused() -> None:
    base = _vocabularies()["llama-spm"]
    scores = [-1000.0] * len(base.fields["tokens"])
    with pytest.raises(
        UnreadTokenizerError, match=r"some.gguf: tokenizer.ggml.scores: '.*' has the score of \d+ other"
    ):
        _made(base._replace(fields={**base.fields, "scores": scores}))
    scores[300] = float("nan")
    with pytest.raises(CheckpointError, match=r"tokenizer.ggml.scores: expected numbers; entry 300 is NaN: convert"):
        _made(base._replace(fields={**base.fields, "scores": scores}))


def test_a_letter_that_bytes_cannot_stand_for_is_refused() -> None:
    base = _vocabularies()["gemma"]
    fields = {**base.fields, "tokens": [*base.fields["tokens"], "ไa"], "scores": [*base.fields["scores"], -9000.0]}
    del fields["token_type"]
    with pytest.raises(UnreadTokenizerError, match=r"some.gguf: tokenizer.ggml.tokens: 'ไ' in the token 'ไa' is merg"):
        _made(base._replace(fields=fields))


@pytest.mark.parametrize("number", range(len(_GOLDEN["untyped"])))
def test_tokens_without_types_are_special_only_by_their_names(number: int, tmp_path: Path) -> None:
    vocabulary, drawn = untyped()[number]
    answer = _GOLDEN["untyped"][number]
    assert vocabulary.name == answer["name"]
    write_gguf_tokenizer(_metadata(vocabulary), "some.gguf", tmp_path)
    tokenizer = DirectoryTokenizer.load(tmp_path)
    assert [tokenizer.encode(text) for text in drawn] == answer["ids"]
    begin = tokenizer.tokens["bos_token"]
    rendered = tokenizer.encode(f"{begin}the tape", special_tokens=False)  # as a chat template writes it
    first = vocabulary.fields["tokens"].index(begin)
    assert rendered == [first, *tokenizer.encode("the tape", special_tokens=False)]
    ids, starts = tokenizer.encode_with_starts(f"{begin}the tape", 10_000)
    assert (ids, starts[0], starts[1]) == (rendered, 0, len(begin))


@pytest.mark.parametrize("kind", _DRAWS)
def test_live_merges(kind: str) -> None:
    if not os.environ.get("TAPELINE_LONG"):
        pytest.skip(f"the long mode compares {_LONG} drawn vocabularies with llama.cpp: set TAPELINE_LONG=1")
    with _reference(_SEED, _LONG, kind) as answers:
        differences, compared, refused = _compared(answers)
    sys.stdout.write(f"{compared} vocabularies compared, {refused} refused, {len(differences)} differences\n")
    assert differences == []


def test_live_texts() -> None:
    if not os.environ.get("TAPELINE_LONG"):
        pytest.skip(f"the long mode compares {_LONG} texts per vocabulary with llama.cpp: set TAPELINE_LONG=1")
    drawn = texts(_SEED, _LONG)
    differences: list[str] = []
    total = 0
    with _reference(_SEED, _LONG) as answers:
        for answer in answers:
            compared, departures = _differences(answer, drawn)
            total += compared
            differences += departures
    sys.stdout.write(f"{total} texts compared, {len(differences)} differences\n")
    assert differences == []
