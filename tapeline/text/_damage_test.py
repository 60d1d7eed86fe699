"""Damaged tokenizers, of GGUF metadata and of tokenizer.json: used, or refused with a typed error."""

import doctest
import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lang_core import CheckpointError, TapelineError
from tapeline.text import Tokenizer, _library, _samples_testing, gguf_tokenizer

_PIECES = ("", " ", ":", "<1:", "$A", "\x00", "é", "▁", "<0x41>", "<s>", "<unk>", "x" * 300)
_VALUES = st.none() | st.booleans() | st.integers(-3, 2**64) | st.floats() | st.sampled_from(_PIECES) | st.just([])
_CHANGES = st.lists(st.tuples(st.integers(0, 2**16), st.integers(0, 2**16), _VALUES), min_size=1, max_size=4)
_FUZZED = settings(max_examples=100_000 if os.environ.get("TAPELINE_LONG") else 150, deadline=None)


def use(tokenizer: Tokenizer) -> None:
    for text in ("the tape <s> 12", "é🙂"):
        stream = tokenizer.stream()
        for token_id in tokenizer.encode(text):
            stream.push(token_id)
        stream.finish()


@_FUZZED
@given(scheme=st.sampled_from(["byte_level", "byte_fallback"]), changes=_CHANGES)
def test_damaged_metadata_are_a_typed_error(scheme: str, changes: list[tuple[int, int, Any]]) -> None:
    fields = _samples_testing.metadata_of(
        getattr(_samples_testing, scheme)(), **{"ggml.eos_token_id": 2, "ggml.add_eos_token": True}
    )
    for key, index, value in changes:
        name = [*fields][key % len(fields)]
        stored = fields[name]
        if isinstance(stored, list) and stored and index % 8:
            fields[name] = [value if place == index % len(stored) else entry for place, entry in enumerate(stored)]
        else:
            fields[name] = value
    try:
        made = gguf_tokenizer(fields, "some.gguf")
        if made is not None:
            use(Tokenizer(Path("tokenizer.json"), made[0]))
    except TapelineError as error:
        assert str(error)  # noqa: PT017


def _changed(node: Any, changes: list[tuple[int, int, Any]]) -> None:
    """Puts values into a JSON document, at places that are drawn."""
    for first, second, value in changes:
        inner, key = node, first
        for step in range(1, 8):
            names = [*inner] if isinstance(inner, dict) else [*range(len(inner))]
            name = names[(key + second // step) % len(names)]
            if not isinstance(inner[name], dict | list) or not inner[name]:
                inner[name] = value
                break
            inner, key = inner[name], key // 3


@_FUZZED
@given(scheme=st.sampled_from([scheme.__name__ for scheme in _samples_testing.SCHEMES]), changes=_CHANGES)
def test_a_damaged_tokenizer_json_is_a_typed_error(
    scheme: str, changes: list[tuple[int, int, Any]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    state = json.loads(getattr(_samples_testing, scheme)().to_str())
    _changed(state, changes)
    path = tmp_path_factory.getbasetemp() / "tokenizer.json"
    path.write_text(json.dumps(state))
    try:
        use(Tokenizer.load(path.parent))
    except TapelineError as error:
        assert str(error)  # noqa: PT017


def test_a_tokenizer_that_fails_is_named(tmp_path: Path) -> None:
    state = json.loads(_samples_testing.no_decoder().to_str())
    state["model"]["unk_token"] = "none"
    (tmp_path / "tokenizer.json").write_text(json.dumps(state))
    tokenizer = Tokenizer.load(tmp_path)
    with pytest.raises(
        CheckpointError, match=r"tokenizer.json cannot encode a text \(WordLevel error: Missing .*copy it"
    ):
        tokenizer.encode("no such words")


def test_doctest() -> None:
    assert doctest.testmod(_library) == (0, 1)
