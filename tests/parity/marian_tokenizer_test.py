"""Tokenizers of Marian models, of source.spm and target.spm: ids and texts are those of transformers."""

from pathlib import Path

import pytest

from lang_core import CheckpointError, InputError
from tapeline.text import Tokenizer, find_tokenizer, tokenizer_files
from tests.goldens.translation.files import write_marian_tokenizer


def test_sources_and_answers(tmp_path: Path) -> None:
    golden = write_marian_tokenizer(tmp_path)
    tokenizer = find_tokenizer(tmp_path)
    assert tokenizer is not None
    for text, ids in golden["sources"]:
        assert tokenizer.encode(text) == ids, text
        assert tokenizer.encode(text, special_tokens=False) == ids[:-1]
    for ids, text in golden["answers"]:
        stream = tokenizer.stream()
        assert tokenizer.decode(ids) == text
        assert ("".join(map(stream.push, ids)) + stream.finish()).strip() == text
    assert {"source.spm", "target.spm", "vocab.json"} <= {*tokenizer_files()}


def test_what_is_refused(tmp_path: Path) -> None:
    write_marian_tokenizer(tmp_path)
    tokenizer = Tokenizer.load(tmp_path)
    with pytest.raises(InputError, match="reads sources of translations, no pairs of texts"):
        tokenizer.encode_pair("the cat", "a dog", 100)
    (tmp_path / "vocab.json").write_text('{"</s>": 0}')
    with pytest.raises(CheckpointError, match=r"vocab\.json lacks the token '<unk>': copy it again"):
        Tokenizer.load(tmp_path)
