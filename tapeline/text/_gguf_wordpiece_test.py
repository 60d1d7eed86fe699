"""BERT's vocabularies to GGUF's metadata and back: the ids of the tokenizers library's own BERT."""

import functools
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

from lang_core import CheckpointError
from tapeline.text import gguf_tokenizer

_SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
_PIECES = (
    "[unused1]", *"abcdetéßx019.,!?-", "##a", "##b", "##c", "##e", "##t", "##s", "##1", "##pe", "the", "tape", "tap",
    "日", "本", "don", "'", "##ing",
)  # fmt: skip
_CASED = ("The", "A")
_TEXTS = ("", "the tape", "The TAPE!", "tapes, tapping?", "日本 the", "[MASK] the [SEP]", "é É don't", "zzz", "a" * 101)


def _fields(pieces: tuple[str, ...], **changes: Any) -> dict[str, Any]:
    """The fields that llama.cpp's converter writes of a vocabulary."""
    marked = [t if t in _SPECIAL else t[2:] if t.startswith("##") else f"▁{t}" for t in pieces]
    fields: dict[str, Any] = {
        "model": "bert",
        "tokens": marked,
        "token_type": [3 if token in _SPECIAL else 1 for token in pieces],
        "unknown_token_id": 1,
        "seperator_token_id": 3,
        "padding_token_id": 0,
        "cls_token_id": 2,
        **changes,
    }
    return {f"tokenizer.ggml.{name}": value for name, value in fields.items() if value is not None}


@functools.cache
def _both(cased: bool) -> tuple[Tokenizer, Tokenizer]:
    """The library's BERT, and what comes back of its vocabulary."""
    tokens = (*_SPECIAL, *_PIECES, *(_CASED if cased else ()))
    library = Tokenizer(models.WordPiece({token: i for i, token in enumerate(tokens)}, unk_token="[UNK]"))
    library.normalizer = normalizers.BertNormalizer(lowercase=not cased)
    library.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    library.decoder = decoders.WordPiece()
    library.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    library.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in _SPECIAL])
    made = gguf_tokenizer(_fields(tokens), "some.gguf")
    assert made is not None
    assert made[1]["unk_token"] == "[UNK]"
    return library, made[0]


@pytest.mark.parametrize("cased", [False, True])
@pytest.mark.parametrize("text", _TEXTS)
def test_texts_and_pairs_have_the_librarys_ids(text: str, cased: bool) -> None:
    library, made = _both(cased)
    for pair in (None, "the tape"):
        actual, expected = made.encode(text, pair), library.encode(text, pair)
        assert (actual.ids, actual.type_ids) == (expected.ids, expected.type_ids)
    ids = library.encode(text).ids
    assert made.decode(ids) == library.decode(ids)


def test_the_file_says_whether_texts_are_made_lower_case() -> None:
    tokens = (*_SPECIAL, *_PIECES, *_CASED)
    for flags, expected in (
        ({}, "The É"),
        ({"normalizer.lowercase": True}, "the e"),
        ({"normalizer.lowercase": True, "normalizer.strip_accents": False}, "the é"),
        ({"normalizer.strip_accents": True}, "The E"),
        ({"normalizer.lowercase": False}, "The É"),
    ):
        made = gguf_tokenizer(_fields(tokens, **flags), "some.gguf")
        assert made is not None
        assert made[0].normalizer.normalize_str("The É") == expected
    with pytest.raises(CheckpointError, match=r"normalizer\.lowercase: expected true or false; found 1"):
        gguf_tokenizer(_fields(tokens, **{"normalizer.lowercase": 1}), "some.gguf")


@settings(max_examples=100, deadline=None)
@given(text=st.text(max_size=25) | st.lists(st.sampled_from([*_PIECES, " ", "T", "\n"])).map("".join))
def test_any_text_has_the_librarys_ids(text: str) -> None:
    library, made = _both(cased=False)
    assert made.encode(text).ids == library.encode(text).ids


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"unknown_token_id": 99}, "unknown_token_id: expected an id below"),
        ({"unknown_token_id": None, "tokens": ["[CLS]", "[SEP]"], "token_type": [3, 3], "seperator_token_id": 1,
          "cls_token_id": 0, "padding_token_id": None}, r"tokens: expected '\[UNK\]' among them"),
        ({"cls_token_id": None, "tokens": ["[UNK]", "[SEP]"], "token_type": [3, 3], "seperator_token_id": 1,
          "unknown_token_id": 0, "padding_token_id": None}, r"tokens: expected '\[CLS\]' among them"),
    ],
)  # fmt: skip
def test_damaged_vocabularies(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(CheckpointError, match=message):
        gguf_tokenizer(_fields((*_SPECIAL, *_PIECES), **changes), "some.gguf")
