"""Unigram tokenizers of GGUF files give SentencePiece's ids and llama.cpp's (``make_unigram_goldens.py``)."""

import base64
import json
from typing import Any

import pytest

from lang_core import CheckpointError
from tapeline.text import gguf_tokenizer
from tests.goldens.golden_files import DATA

_GOLDEN: dict[str, Any] = json.loads((DATA / "gguf_unigram.json").read_text())


def _metadata(**changes: Any) -> dict[str, Any]:
    fields = _GOLDEN["vocabulary"]
    stored = {
        "model": "t5",
        "pre": "default",
        "tokens": fields["tokens"],
        "scores": fields["scores"],
        "token_type": fields["types"],
        "precompiled_charsmap": list(base64.b64decode(fields["charsmap"])),
        "add_space_prefix": True,
        "remove_extra_whitespaces": True,
        "eos_token_id": 1,
        "unknown_token_id": 2,
        **changes,
    }
    return {"general.architecture": "t5"} | {f"tokenizer.ggml.{key}": value for key, value in stored.items()}


def _tokenizer(**changes: Any) -> Any:
    made = gguf_tokenizer(_metadata(**changes), "some.gguf")
    assert made is not None
    return made[0]


# llama.cpp puts a space before a text that it takes extra ones from, also where the file wants none there, and
# SentencePiece does not.
_CASES = [case for case in _GOLDEN["llama_cpp_cases"] if case["prefix"] or not case["collapsed"]]


@pytest.mark.parametrize("case", _CASES, ids=lambda case: f"{case['prefix']}-{case['collapsed']}")
def test_ids_are_llama_cpps(case: dict[str, Any]) -> None:
    tokenizer = _tokenizer(add_space_prefix=case["prefix"], remove_extra_whitespaces=case["collapsed"])
    for text, expected in zip(_GOLDEN["texts"], case["ids"], strict=True):
        alone = text == " " or "> <" in text  # spaces alone, before which llama.cpp puts none
        if case["collapsed"] or not case["prefix"] or not alone:
            assert tokenizer.encode(text, add_special_tokens=False).ids == expected, text


def test_ids_are_sentencepieces() -> None:
    """Or others of the same pieces and score; of texts without names of special tokens, which it takes for letters."""
    tokenizer, scores = _tokenizer(), _GOLDEN["vocabulary"]["scores"]
    for text, expected in zip(_GOLDEN["texts"], _GOLDEN["sentencepiece_ids"], strict=True):
        if "</s>" not in text:
            ids = tokenizer.encode(text, add_special_tokens=False).ids
            assert sorted(ids) == sorted(expected), text
            assert sum(scores[token] for token in ids) == pytest.approx(sum(scores[token] for token in expected))
            assert tokenizer.encode(text).ids == [*ids, 1]


def test_pairs_have_a_token_between_them() -> None:
    tokenizer = _tokenizer(add_sep_token=True, seperator_token_id=1)
    one, two = (tokenizer.encode(text, add_special_tokens=False).ids for text in ("the tape", "a token"))
    assert tokenizer.encode("the tape", "a token").ids == [*one, 1, 1, *two, 1]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"scores": None}, r"tokenizer.ggml.scores and token_type: expected a score per token"),
        (
            {"token_type": [3] * len(_GOLDEN["vocabulary"]["tokens"])},
            r"a token of unknown letters; found no such token",
        ),
        ({"scores": [0.0]}, r"tokenizer.ggml.scores: expected 140 values, one per token"),
        ({"precompiled_charsmap": [1, 2, 3]}, r"precompiled_charsmap: expected SentencePiece's map of characters"),
        ({"precompiled_charsmap": "x"}, r"precompiled_charsmap: expected SentencePiece's map of characters"),
    ],
)
def test_damaged_vocabularies(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(CheckpointError, match=message):
        gguf_tokenizer(_metadata(**changes), "some.gguf")


def test_tokens_of_bytes_are_no_text() -> None:
    fields = _GOLDEN["vocabulary"]
    tokens = [*fields["tokens"], "<0x41>", "<0xC3>", "<0xA9>"]
    more = {"tokens": tokens, "scores": [*fields["scores"], 0.0, 0.0, 0.0], "token_type": [*fields["types"], 6, 6, 6]}
    tokenizer = _tokenizer(**more)
    first = len(fields["tokens"])
    assert tokenizer.encode("<0x41>").ids == _tokenizer().encode("<0x41>").ids
    assert tokenizer.decode([first, first + 1, first + 2]) == "Aé"
    text = "the tape"
    assert tokenizer.decode(tokenizer.encode(text).ids) == _tokenizer().decode(_tokenizer().encode(text).ids)
