"""Tokenizers of GGUF files give llama.cpp's ids (``tests/goldens/make_vocabulary_goldens.py``).

The long mode compares 2,000 texts for each vocabulary live, if llama_cpp can be imported or TAPELINE_REFERENCE_PYTHON
names a Python that can import it.
"""

import functools
import importlib.util
import itertools
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from typing import Any, Final

import pytest
from tokenizers import Tokenizer

from tapeline.text import gguf_tokenizer
from tests.goldens.drawn_vocabularies import SPLITTINGS, SURROUNDED, Vocabulary, flagged, texts, vocabularies
from tests.goldens.golden_files import DATA

_GOLDEN: dict[str, Any] = json.loads((DATA / "drawn_vocabularies.json").read_text())
_LONG = 2_000
_SEED = 1_000


def _changes_case(text: str) -> bool:
    return any(before.islower() and after.isupper() for before, after in itertools.pairwise(text))


def _has_numbers(text: str) -> bool:
    return _changes_case(text) or re.search(r"\d", text) is not None


# Where llama.cpp departs from the pattern of the model's own tokenizer.json, which is the one here: it knows no upper
# and lower case beyond ASCII, or none at all; no border of words in what lies ahead; no wide space; and strips white
# space of ASCII alone.
_DEPARTS: dict[str, Callable[[str], bool]] = {
    **dict.fromkeys(
        (
            *("gpt2-tekken", "gpt2-gpt-4o", "gpt2-llama4", "gpt2-minimax-m2", "gpt2-kanana2", "gpt2-talkie"),
            *("gpt2-granite-embed-multi-97m", "gpt2-kimi-k2", "gpt2-youtu"),
        ),
        _changes_case,
    ),
    **dict.fromkeys(("gpt2-tiny_aya", "gpt2-cohere2moe"), _has_numbers),
    "gpt2-afmoe": lambda text: re.search(r"\s[\d½]", text) is not None,
    "gpt2-deepseek-llm": lambda text: "\u3000" in text,
    "phi3": lambda text: re.search("[\u00a0\u3000]", text) is not None,
}


@functools.cache
def _vocabularies() -> dict[str, Vocabulary]:
    return {vocabulary.name: vocabulary for vocabulary in (*vocabularies(), *flagged())}


def _tokenizer(name: str) -> Tokenizer:
    vocabulary = _vocabularies()[name]
    metadata = {"general.architecture": vocabulary.architecture} | {
        key if key.startswith("general.") else f"tokenizer.ggml.{key}": value
        for key, value in vocabulary.fields.items()
    }
    made = gguf_tokenizer(metadata, "some.gguf")
    assert made is not None
    return made[0]


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


def test_live_texts() -> None:
    if not os.environ.get("TAPELINE_LONG"):
        pytest.skip(f"the long mode compares {_LONG} texts per vocabulary with llama.cpp: set TAPELINE_LONG=1")
    if "TAPELINE_REFERENCE_PYTHON" not in os.environ and importlib.util.find_spec("llama_cpp") is None:
        pytest.skip("llama_cpp cannot be imported: name a Python that has it in TAPELINE_REFERENCE_PYTHON")
    python = os.environ.get("TAPELINE_REFERENCE_PYTHON", sys.executable)
    command = [python, "-m", "tests.goldens.make_vocabulary_goldens", str(_SEED), str(_LONG)]
    drawn = texts(_SEED, _LONG)
    differences: list[str] = []
    total = 0
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        for answer in map(json.loads, process.stdout):
            compared, departures = _differences(answer, drawn)
            total += compared
            differences += departures
    assert process.returncode == 0
    sys.stdout.write(f"{total} texts compared, {len(differences)} differences\n")
    assert differences == []
