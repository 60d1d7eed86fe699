"""Tokenizers of drawn directories are transformers' (``tests/goldens/make_tokenizer_goldens.py``).

The long mode compares 5,000 directories live, and 5,000 of any type of models, if transformers can be imported or
TAPELINE_REFERENCE_PYTHON names a Python that can import it.
"""

import importlib.util
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer as HuggingFaceTokenizer
from tokenizers import models, pre_tokenizers

from lang_core import InputError
from tapeline.text import Chat, ChatTemplate, Tokenizer
from tests.goldens.drawn_tokenizers import MESSAGES, DrawnDirectory, draw_directory, draw_of_any_type
from tests.goldens.golden_files import DATA

_CLASSES: dict[str, Any] = json.loads((DATA / "tokenizer_classes.json").read_text())
_GOLDEN: dict[str, Any] = json.loads((DATA / "drawn_tokenizers.json").read_text())
_LONG = 5_000
_FIRST = 1_000


def _answers(directory: DrawnDirectory, folder: Path) -> dict[str, Any]:
    directory.write(folder)
    tokenizer = Tokenizer.load(folder)

    def ids(text: str, **options: Any) -> list[int]:
        try:
            return tokenizer.encode(text, **options)
        except InputError as error:
            if "gives no token" not in str(error):
                raise
            return []

    encoded = [ids(text) for text in directory.texts]
    answers: dict[str, Any] = {
        "ids": encoded,
        "plain_ids": [ids(text, special_tokens=False) for text in directory.texts],
        "pair": [*tokenizer.encode_pair(directory.texts[0], directory.texts[1], 10**9)],
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
    ends = Chat(template, tokenizer).end_ids()
    assert answers["stop"] is None or answers["stop"] in ends
    return answers


def _differences(
    expected: dict[str, Any], folder: Path, draw: Callable[[int], DrawnDirectory] = draw_directory
) -> list[str]:
    """Returns what differs; nothing if transformers refuses the directory and so may we."""
    directory = draw(expected["seed"])
    folder.mkdir()
    try:
        actual = _answers(directory, folder)
    except InputError as error:
        return [] if "error" in expected else [f"refused: {error}"]
    if "error" in expected:
        return []
    return [
        f"seed {directory.seed} ({expected['class']}): {name}: expected {expected.get(name)!r}; found {value!r}"
        for name, value in actual.items()
        if value != expected.get(name)
    ]


@pytest.mark.parametrize("expected", _GOLDEN["answers"], ids=lambda answer: str(answer["seed"]))
def test_a_drawn_directory_is_read_as_by_transformers(expected: dict[str, Any], tmp_path: Path) -> None:
    assert _differences(expected, tmp_path / "drawn") == []


def test_the_drawn_directories_have_every_class() -> None:
    classes = {answer.get("class") for answer in _GOLDEN["answers"]}
    wanted = ("TokenizersBackend", "LlamaTokenizer", "Qwen2Tokenizer", "GemmaTokenizer", "BertTokenizer", "T5Tokenizer")
    assert classes >= {*wanted}


def _read(folder: Path, model_type: str, named: str | None = None) -> tuple[Any, ...]:
    """Returns ids of a text that classes split differently, and the notes of the tokenizer."""
    (folder / "config.json").write_text(json.dumps({"model_type": model_type}))
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": named} if named else {}))
    tokenizer = Tokenizer.load(folder)
    return tokenizer.encode("e\u0301a 123 a"), tokenizer.tokens, tokenizer.notes


def test_every_type_of_models_has_the_class_of_transformers(tmp_path: Path) -> None:
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    words = ["<unk>", "[UNK]", "<s>", "</s>", "12", "123", "Ġ1", "Ġ12", "Ġ123", "Ġa"]
    merges = [("1", "2"), ("12", "3"), ("Ġ", "1"), ("Ġ1", "2"), ("Ġ12", "3"), ("Ġ", "a")]
    inner = HuggingFaceTokenizer(models.BPE({token: i for i, token in enumerate([*letters, *words])}, merges))
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), byte_level])
    inner.save(str(tmp_path / "tokenizer.json"))
    plain = "TokenizersBackend"
    for model_type, registered in _CLASSES["registered"].items():
        unnamed = _CLASSES["unnamed"][model_type]
        same = _read(tmp_path, model_type) == _read(tmp_path, "strange", unnamed)
        assert same == (unnamed != "LlamaTokenizer"), model_type  # named for a byte-level file, it is generic
        # The class of the type wins over the named one if it is generic, or if repositories name a wrong one.
        for named in ("GPT2Tokenizer", "Qwen2Tokenizer"):
            chosen = registered if registered == plain or model_type in _CLASSES["wrong"] else named
            assert _read(tmp_path, model_type, named) == _read(tmp_path, "strange", chosen), (model_type, named)


def _of_any_type(seed: int) -> DrawnDirectory:
    return draw_of_any_type(seed, _CLASSES["registered"])


def _is_compared(expected: dict[str, Any], folder: Path) -> bool:
    """Returns whether a written directory has a tokenizer without a note that it may differ from the class."""
    if "error" in expected:
        return False
    try:
        return not Tokenizer.load(folder).notes
    except InputError:  # a file that only the class can read: refused
        return False


def _live(count: int, *space: str) -> Iterator[dict[str, Any]]:
    """Yields the reference's answers."""
    python = os.environ.get("TAPELINE_REFERENCE_PYTHON", sys.executable)
    command = [python, "-m", "tests.goldens.make_tokenizer_goldens", str(_FIRST), str(count), *space]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield from map(json.loads, process.stdout)
    assert process.returncode == 0


def _skip_if_not_live() -> None:
    if not os.environ.get("TAPELINE_LONG"):
        pytest.skip(f"the long mode compares {_LONG} directories with transformers: set TAPELINE_LONG=1")
    if "TAPELINE_REFERENCE_PYTHON" not in os.environ and importlib.util.find_spec("transformers") is None:
        pytest.skip("transformers cannot be imported: name a Python that has it in TAPELINE_REFERENCE_PYTHON")


def test_live_directories(tmp_path: Path) -> None:
    _skip_if_not_live()
    differences: list[str] = []
    refused = seen = 0
    for expected in _live(_LONG):
        seen += 1
        refused += "error" in expected
        differences += _differences(expected, tmp_path / str(expected["seed"]))
    sys.stdout.write(f"{seen} directories, {refused} of them refused by transformers, {len(differences)} differences\n")
    assert differences == []
    assert seen == _LONG


def test_live_directories_of_any_type_of_models(tmp_path: Path) -> None:
    """Directories with a note (class without rules here, model of another kind than the class wants) may differ."""
    _skip_if_not_live()
    differences: list[str] = []
    classes: Counter[str] = Counter()
    seen = 0
    for expected in _live(_LONG, "types"):
        seen += 1
        folder = tmp_path / str(expected["seed"])
        here = _differences(expected, folder, _of_any_type)
        if _is_compared(expected, folder):
            classes[expected["class"]] += 1
            differences += here
    compared = sum(classes.values())
    sys.stdout.write(f"{seen} directories, {compared} compared, of {len(classes)} classes, {len(differences)} differ\n")
    assert differences == []
    assert (seen, compared > _LONG // 4) == (_LONG, True)
