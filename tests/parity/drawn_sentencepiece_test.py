"""Tokenizers of files of SentencePiece are transformers' (``tests/goldens/make_sentencepiece_goldens.py``).

The long mode compares 2,000 directories live, if TAPELINE_REFERENCE_PYTHON names a Python that can import transformers
and sentencepiece, or this one can.
"""

import importlib.util
import json
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lang_core import CheckpointError, InputError
from tapeline.text import ChatTemplate, Tokenizer
from tests.goldens.drawn_sentencepiece import MESSAGES, DrawnPieces, draw_pieces, unpacked
from tests.goldens.golden_files import DATA

_GOLDEN: dict[str, Any] = json.loads((DATA / "drawn_sentencepiece.json").read_text())
_LONG = 2_000
_FIRST = 1_000


def _answers(tokenizer: Tokenizer, drawn: DrawnPieces, folder: Path) -> dict[str, Any]:
    def ids(text: str, **options: Any) -> list[int]:
        try:
            return tokenizer.encode(text, **options)
        except InputError as error:
            if "gives no token" not in str(error):
                raise
            return []

    encoded = [ids(text) for text in drawn.texts]
    answers: dict[str, Any] = {
        "ids": encoded,
        "plain_ids": [ids(text, special_tokens=False) for text in drawn.texts],
        "pair": [*tokenizer.encode_pair(drawn.texts[0], drawn.texts[1], 10**9)],
        "decoded": [tokenizer.decode(one) for one in encoded],
        "decoded_whole": [tokenizer.decode(one, special_tokens=True) for one in encoded],
        "tokens": tokenizer.tokens,
        "stop": tokenizer.eos_id(),
    }
    for one, text in zip(encoded, answers["decoded"], strict=True):
        stream = tokenizer.stream()
        assert "".join(stream.push(token) for token in one) + stream.finish() == text
    try:
        template = ChatTemplate.find(folder)
    except InputError:
        return answers
    answers["chat"] = template.render(MESSAGES)
    answers["chat_ids"] = ids(answers["chat"], special_tokens=False)
    return answers


def _differences(expected: dict[str, Any], folder: Path, *, maps: bool) -> list[str]:
    """Returns what differs; nothing if transformers refuses the directory and so may we."""
    drawn = draw_pieces(expected["seed"], maps=maps)
    folder.mkdir()
    drawn.write(folder, unpacked(expected["model"]))
    try:
        tokenizer = Tokenizer.load(folder)
        actual = _answers(tokenizer, drawn, folder)
    except (InputError, CheckpointError) as error:
        return [] if "error" in expected else [f"seed {drawn.seed}: refused: {error}"]
    if "error" in expected:
        return []
    differences = [
        f"seed {drawn.seed} ({expected['class']}): {name}: expected {expected.get(name)!r}; found {value!r}"
        for name, value in actual.items()
        if value != expected.get(name)
    ]
    return differences + _departures(tokenizer, expected, actual["plain_ids"], drawn)


def _departures(tokenizer: Tokenizer, expected: dict[str, Any], ids: list[list[int]], drawn: DrawnPieces) -> list[str]:
    """Returns texts with other ids than SentencePiece's, unless the tokenizer says so.

    Left out are texts with names of control and byte pieces or tokens that are matched whole, white space that is no
    space, marks for spaces, and a space before the text, which transformers handles in other ways.
    """
    if tokenizer.notes or expected["class"] == "XLMRobertaTokenizer":  # which has other ids
        return []
    whole = [token["content"] for token in json.loads(tokenizer.serialized())["added_tokens"]]
    whole += ["<s>", "</s>", "<unk>", "<0x41>"]
    return [
        f"seed {drawn.seed}: {text!r}: SentencePiece has {others}; found {own}, and no note"
        for text, own, others in zip(drawn.texts, ids, expected["sentencepiece"], strict=True)
        if own != others and not text.startswith(" ") and not any(token in text for token in (*whole, *"\t\n▁"))
    ]


@pytest.mark.parametrize("expected", _GOLDEN["answers"], ids=lambda answer: str(answer["seed"]))
def test_a_file_of_sentencepiece_is_read_as_by_transformers(expected: dict[str, Any], tmp_path: Path) -> None:
    assert _differences(expected, tmp_path / "drawn", maps=False) == []


def test_the_drawn_directories_have_every_class() -> None:
    classes = {answer.get("class") for answer in _GOLDEN["answers"]}
    assert classes >= {"TokenizersBackend", "LlamaTokenizer", "GemmaTokenizer", "T5Tokenizer", "XLMRobertaTokenizer"}


def test_rules_that_are_not_applied_are_noted(tmp_path: Path) -> None:
    known = {
        answer["seed"]: _notes(answer, tmp_path / str(answer["seed"]))
        for answer in _GOLDEN["answers"]
        if "error" not in answer
    }
    assert any("add_dummy_prefix=true" in note for notes in known.values() for note in notes)
    assert all("ids can differ from SentencePiece's" in note for notes in known.values() for note in notes)
    assert any(not notes for notes in known.values())


def _notes(answer: dict[str, Any], folder: Path) -> tuple[str, ...]:
    folder.mkdir()
    draw_pieces(answer["seed"], maps=False).write(folder, unpacked(answer["model"]))
    return Tokenizer.load(folder).notes


def _damaged(draw: random.Random, model: bytes) -> bytes:
    """Returns a model with bytes that are changed, left out or put in."""
    data = bytearray(model)
    for _ in range(draw.randint(1, 4)):
        place = draw.randrange(len(data))
        kind = draw.random()
        if kind < 0.5:
            data[place] = draw.randrange(256)
        elif kind < 0.7:
            del data[place : place + draw.randint(1, 40)]
        elif kind < 0.85:
            data[place:place] = draw.randbytes(draw.randint(1, 12))
        else:
            del data[place:]
        if not data:
            break
    return bytes(data)


@pytest.mark.parametrize("seed", range(20))
def test_a_damaged_file_is_an_error_or_a_tokenizer(seed: int, tmp_path: Path) -> None:
    draw = random.Random(seed)
    answer = draw.choice([answer for answer in _GOLDEN["answers"] if "error" not in answer])
    drawn, model = draw_pieces(answer["seed"], maps=False), unpacked(answer["model"])
    for _ in range(25):
        drawn.write(tmp_path, _damaged(draw, model))
        try:
            tokenizer = Tokenizer.load(tmp_path)
        except CheckpointError as error:
            assert drawn.name in str(error)  # noqa: PT017 - either is right
            continue
        for text in drawn.texts:
            try:
                tokenizer.decode(tokenizer.encode(text))
            except (InputError, CheckpointError):
                continue


def _live(count: int) -> Iterator[dict[str, Any]]:
    """Yields the reference's answers."""
    python = os.environ.get("TAPELINE_REFERENCE_PYTHON", sys.executable)
    command = [python, "-m", "tests.goldens.make_sentencepiece_goldens", str(_FIRST), str(count)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        yield from map(json.loads, process.stdout)
    assert process.returncode == 0


def test_live_files(tmp_path: Path) -> None:
    if not os.environ.get("TAPELINE_LONG"):
        pytest.skip(f"the long mode compares {_LONG} files with transformers: set TAPELINE_LONG=1")
    if "TAPELINE_REFERENCE_PYTHON" not in os.environ and importlib.util.find_spec("sentencepiece") is None:
        pytest.skip("sentencepiece cannot be imported: name a Python that has it in TAPELINE_REFERENCE_PYTHON")
    differences: list[str] = []
    refused = seen = 0
    for expected in _live(_LONG):
        seen += 1
        refused += "error" in expected
        differences += _differences(expected, tmp_path / str(expected["seed"]), maps=True)
    sys.stdout.write(f"{seen} directories, {refused} of them refused by transformers, {len(differences)} differences\n")
    assert differences == []
    assert seen == _LONG
