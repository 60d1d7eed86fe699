"""Checked grammars: kept, shared, bounded; and tokenizers."""

import json
from pathlib import Path

import numpy as np
import pytest

from tapeline.demo import TOKENIZER
from tapeline.grammar import (
    Choices,
    JsonObject,
    JsonSchema,
    RegularExpression,
    _table,
    compile_constraint,
    compile_constraints,
)
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


def test_answers_of_a_request_have_a_worker_each_and_one_compiled_grammar(tmp_path: Path) -> None:
    tokenizer = saved(_samples_testing.byte_level(), tmp_path)
    workers = _table.table_of(tokenizer).workers
    ends = frozenset({0})
    schema = JsonSchema({"type": "object", "properties": {f"p{i}": {"type": "integer"} for i in range(300)}})
    constraints = compile_constraints(schema, tokenizer, ends, 9)
    lone = compile_constraint(schema, tokenizer, ends)
    out, alone = (np.zeros(tokenizer.vocabulary_size, np.bool_) for _ in range(2))
    for text in ("{", '"', "p"):
        lone.mask(alone)
        for constraint in constraints:
            constraint.mask(out)
            np.testing.assert_array_equal(out, alone)
        for constraint in (*constraints, lone):
            constraint.accept(text_ids(tokenizer, text)[0])
    assert workers.compiled <= 2  # the lone one may have come while no worker that has the grammar waited
    walks = [walk(constraint, tokenizer, ends, np.random.default_rng(i), 9) for i, constraint in enumerate(constraints)]
    assert all(ended for _, ended in walks)


def test_a_family_without_its_worker_compiles_again(tmp_path: Path) -> None:
    tokenizer = saved(_samples_testing.byte_level(), tmp_path)
    first, second = compile_constraints(Choices(["kept"]), tokenizer, {0}, 2)
    out = np.zeros(tokenizer.vocabulary_size, np.bool_)
    family = first._family
    assert family is not None
    family._worker.close()
    for constraint in (first, second):
        constraint.mask(out)
        assert out.any()


@pytest.mark.parametrize(("salts", "compiles"), [(("a", "a"), 1), (("a", "b"), 2), ((None, None), 2), (("", "a"), 2)])
def test_grammars_are_kept_by_a_salt(tmp_path: Path, salts: tuple[str | None, ...], compiles: int) -> None:
    tokenizer = saved(_samples_testing.byte_level(), tmp_path)
    workers = _table.table_of(tokenizer).workers
    out = np.zeros(tokenizer.vocabulary_size, np.bool_)
    for salt in salts:
        constraint = compile_constraint(Choices(["kept"]), tokenizer, {0}, salt=salt)
        constraint.mask(out)
        constraint.close()
    assert workers.compiled == compiles


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
