"""Tokenizer files that end the process of the library, or that it reads for ever: each is one error."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from lang_core import CheckpointError
from tapeline.text import Tokenizer, _hostile_testing, _limits
from tapeline.text._gguf_bpe import _SPLITS
from tapeline.text._gguf_tokenizer import gguf_tokenizer

_USED = ("as it is",)
_LONG = os.environ.get("TAPELINE_LONG") == "1"


def read(*arguments: str) -> dict[str, str]:
    """Reads files in a child; returns what came of each."""
    done = subprocess.run(
        [sys.executable, _hostile_testing.__file__, *arguments],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout[-500:]}\n{done.stderr[-2000:]}"
    lines = [line.partition(": ") for line in done.stdout.splitlines()]
    return {name: result for name, _, result in lines}


def test_hostile_files_are_one_error() -> None:
    results = read("cases")
    assert set(results) == set(_hostile_testing.CASES)
    for name, result in results.items():
        assert (result == "ok") == (name in _USED), (name, result)
        assert result.startswith(("ok", "CheckpointError: ")), (name, result)
    expected = "added_tokens.0.id: expected an integer from 0 to 16777215; found 2147483648"
    assert expected in results["added id 2147483648"]
    assert "model.vocab.b: expected an integer from 0 to 16777215" in results["BPE id 2147483648"]
    assert "model.vocab: expected 2048 at most; found a token of 2000000 letters" in results["long token"]
    assert "has the key 'model' twice" in results["key twice"]


def test_drawn_changes_are_read_or_one_error() -> None:
    """Three thousand files with up to three wrong values each; ten times as many with TAPELINE_LONG=1."""
    for seed in range(10 if _LONG else 1):
        results = read("drawn", str(seed), "3000")
        assert len(results) == 3000
        kinds = {result.partition(":")[0] for result in results.values()}
        assert kinds <= {"ok", "CheckpointError", "InputError"}
        assert sum(result == "ok" for result in results.values()) > 50


@pytest.mark.parametrize("name", _SPLITS)
def test_patterns_in_use_are_taken(name: str) -> None:
    for pattern in _SPLITS[name].patterns:
        _limits.check_pattern(pattern, "tokenizer.json", "pattern")


@pytest.mark.parametrize(
    "pattern",
    [
        "(a+)+",
        "(a*)*",
        "(?:a+){2,}",
        "(a|a)*",
        "(a|aa)+",
        "([ab]|a)+",
        "(.|a)+",
        "((a|b)+)+",
        "(a(b+)c)+",
        "(a+){1,99}",
    ],
)
def test_patterns_that_explode(pattern: str) -> None:
    with pytest.raises(CheckpointError, match="expected a pattern whose time is bounded"):
        _limits.check_pattern(pattern, "tokenizer.json", "pattern")


@pytest.mark.parametrize(
    "pattern",
    [r"\(a+\)+", "[(a+)+]+", r"(?:\p{N}{3})+", "(?:a|b)+", "(a+)", "(a+)?", "(a+){1,3}", "(?i:'s|'t)?", ")+", "("],
)
def test_patterns_that_do_not(pattern: str) -> None:
    _limits.check_pattern(pattern, "tokenizer.json", "pattern")


def test_a_vocabulary_without_a_tokenizer_json(tmp_path: Path) -> None:
    (tmp_path / "tokenizer_config.json").write_text('{"tokenizer_class": "GPT2Tokenizer"}')
    (tmp_path / "merges.txt").write_text("#version: 0.2\n")
    (tmp_path / "vocab.json").write_text('{"a": 0, "b": 2147483648}')
    with pytest.raises(CheckpointError, match=r"vocab.json: vocab.b: expected an integer from 0 to 16777215"):
        Tokenizer.load(tmp_path)
    (tmp_path / "vocab.json").write_text('{"a": 0, "b": 1}')
    assert Tokenizer.load(tmp_path).encode("ab") == [0, 1]


def _pieces(tokens: list[str]) -> dict[str, object]:
    return {
        "general.architecture": "llama",
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": ["<unk>", *tokens],
        "tokenizer.ggml.scores": [0.0] * (len(tokens) + 1),
    }


@pytest.mark.parametrize(
    ("tokens", "message"),
    [
        (["a", "b", "a" * 200_000], "tokens: expected 2048 at most; found a token of 200000 letters"),
        (["a" * count for count in range(1, 3001)], "tokens: expected 2048 at most"),
    ],
)
def test_long_tokens_of_gguf_files(tokens: list[str], message: str) -> None:
    """One token of 200,000 letters took time and memory with the square of its length."""
    with pytest.raises(CheckpointError, match=message):
        gguf_tokenizer(_pieces(tokens), "some.gguf")


@pytest.mark.parametrize("bound", ["_MOST_LETTERS", "_MOST_MERGES"])
def test_merges_take_bounded_steps(bound: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"tapeline.text._gguf_sentencepiece.{bound}", 5)
    with pytest.raises(CheckpointError, match="tokens: finding the merges takes more than"):
        gguf_tokenizer(_pieces(["a" * count for count in range(1, 40)]), "some.gguf")


def test_ties_take_bounded_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    tokens = ["a", "b", "ab", "ba", "aab", "bba", "abab"]
    monkeypatch.setattr("tapeline.text._gguf_ties.MOST_STEPS", 10)
    with pytest.raises(CheckpointError, match="takes more than 10 steps"):
        gguf_tokenizer(_pieces(tokens), "some.gguf")
