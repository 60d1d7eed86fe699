"""Checked grammars: kept, shared, bounded; and tokenizers."""

import json
from pathlib import Path

import numpy as np
import pytest

from tapeline.demo import TOKENIZER
from tapeline.grammar import Choices, JsonObject, RegularExpression, _table, compile_constraint
from tapeline.grammar._walks_testing import saved, text_ids, walk
from tapeline.text import Tokenizer, _samples_testing


def test_tables_and_grammars_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = saved(_samples_testing.byte_level(), tmp_path)
    first = compile_constraint(Choices(["kept"]), tokenizer, {0})
    monkeypatch.setattr(_table, "TokenTable", None)  # nothing is built again
    monkeypatch.setattr("tapeline.grammar._compile._error", None)
    again = compile_constraint(Choices(["kept"]), tokenizer, {0})
    first.accept(tokenizer.encode("kept")[0])
    ids, ended = walk(again, tokenizer, frozenset({0}), np.random.default_rng(0), 9)  # it has a state of its own
    assert (tokenizer.decode(ids), ended) == ("kept", True)


def test_the_number_of_kept_grammars_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = saved(_samples_testing.byte_fallback(), tmp_path)
    for index in range(65):
        compile_constraint(Choices([f"t{index}"]), tokenizer, {2})
    monkeypatch.setattr("tapeline.grammar._compile._error", None)
    compile_constraint(Choices(["t1"]), tokenizer, {2})
    with pytest.raises(TypeError):  # the oldest went
        compile_constraint(Choices(["t0"]), tokenizer, {2})


def test_special_tokens_are_no_text(tmp_path: Path) -> None:
    """Decoding drops them, so that none may stand inside a text."""
    tokenizer = saved(_samples_testing.byte_level(), tmp_path)
    out = np.zeros(tokenizer.vocabulary_size, np.bool_)
    compile_constraint(RegularExpression("(?s:.*)"), tokenizer, ()).mask(out)
    assert [bool(out[token]) for token in (0, 1, tokenizer.vocabulary_size - 1)] == [False] * 3  # <s>, </s>, <tool>
    assert out[text_ids(tokenizer, "<tool>")].all()


def test_the_demos_tokenizer() -> None:
    tokenizer = Tokenizer.load(TOKENIZER.parent)
    ends = frozenset({0})
    ids, ended = walk(compile_constraint(JsonObject(), tokenizer, ends), tokenizer, ends, np.random.default_rng(3), 60)
    assert ended
    assert isinstance(json.loads(tokenizer.decode(ids)), dict)
