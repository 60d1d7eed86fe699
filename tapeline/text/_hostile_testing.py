"""Hostile tokenizer.json files, read and used in this process with limits; a child process of _limits_test.py.

Each line of standard output is the name of a file and what came of it: ``ok``, or the error's type and text. The name
comes before the file is read, so that the last line names a file that ends the process.

Usage: _hostile_testing.py cases, or _hostile_testing.py drawn SEED COUNT
"""

import base64
import copy
import json
import random
import resource
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from lang_core import TapelineError
from tapeline.text import Tokenizer

_MEMORY: Final = 3 << 30
_SECONDS: Final = 240  # of processor time, for all files
_TEXT: Final = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab ab <s>"
Change = Callable[[dict[str, Any]], object]


def plain(kind: str = "BPE") -> dict[str, Any]:
    """Returns a small tokenizer.json with a step of every kind that has numbers."""
    models: dict[str, dict[str, Any]] = {
        "BPE": {
            "type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
            "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
            "vocab": {"a": 0, "b": 1, "aa": 2}, "merges": [["a", "a"]],
        },
        "WordPiece": {
            "type": "WordPiece", "unk_token": "a", "continuing_subword_prefix": "##", "max_input_chars_per_word": 100,
            "vocab": {"a": 0, "##a": 1},
        },
        "WordLevel": {"type": "WordLevel", "unk_token": "a", "vocab": {"a": 0, "b": 1}},
        "Unigram": {"type": "Unigram", "unk_id": 0, "byte_fallback": False, "vocab": [["a", 0.0], ["b", -1.0]]},
    }  # fmt: skip
    token = {"id": 3, "content": "<s>", "special": True, "single_word": False, "lstrip": False, "rstrip": False}
    return {
        "version": "1.0",
        "truncation": {"direction": "Right", "max_length": 100, "strategy": "LongestFirst", "stride": 0},
        "padding": {
            "strategy": {"Fixed": 4}, "direction": "Right", "pad_to_multiple_of": 8, "pad_id": 0, "pad_type_id": 0,
            "pad_token": "a",
        },
        "added_tokens": [{**token, "normalized": False}],
        "normalizer": {
            "type": "Sequence",
            "normalizers": [{"type": "Replace", "pattern": {"String": "c"}, "content": "a"}, {"type": "NFC"}],
        },
        "pre_tokenizer": {
            "type": "Split", "pattern": {"Regex": r"\s+|\S+"}, "behavior": "Isolated", "invert": False,
        },
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {"<s>": {"id": "<s>", "ids": [3], "tokens": ["<s>"]}},
        },
        "decoder": {
            "type": "Sequence",
            "decoders": [{"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}],
        },
        "model": models[kind],
    }  # fmt: skip


def _split(pattern: str) -> Change:
    step = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
    return lambda state: state.update(pre_tokenizer=step)


def _map(stored: bytes) -> Change:
    step = {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(stored).decode()}
    return lambda state: state.update(normalizer=step)


def _replaced(times: int, content: str) -> Change:
    step = {"type": "Replace", "pattern": {"String": "a"}, "content": content}
    return lambda state: state.update(normalizer={"type": "Sequence", "normalizers": [step] * times})


def _unigram(*vocabulary: list[Any]) -> Change:
    return lambda state: state.update(model={**plain("Unigram")["model"], "vocab": [*vocabulary]})


CASES: Final[dict[str, Change]] = {
    "as it is": lambda state: None,
    **{
        f"added id {number}": lambda state, number=number: state["added_tokens"][0].update(id=number)
        for number in (1 << 24, 1 << 28, 1 << 31, (1 << 32) - 1, 1 << 32, -1)
    },
    **{
        f"{kind} id {number}": lambda state, kind=kind, number=number: state.update(
            model={**plain(kind)["model"], "vocab": {"a": 0, "b": number}}
        )
        for kind in ("BPE", "WordPiece", "WordLevel")
        for number in (1 << 24, 1 << 31, (1 << 32) - 1)
    },
    "unk_id": lambda state: state.update(model={**plain("Unigram")["model"], "unk_id": 1 << 40}),
    "padding": lambda state: state["padding"].update(strategy={"Fixed": 10**12}),
    "padding to a multiple of 0": lambda state: state["padding"].update(pad_to_multiple_of=0),
    "stride": lambda state: state["truncation"].update(stride=5, max_length=1),
    "strip": lambda state: state.update(decoder={"type": "Strip", "content": "a", "start": 1 << 63, "stop": 1}),
    "type_id": lambda state: state["post_processor"]["single"][0]["SpecialToken"].update(type_id=1 << 31),
    "template ids": lambda state: state["post_processor"]["special_tokens"]["<s>"].update(ids=[1 << 31]),
    "template without tokens": lambda state: state["post_processor"]["special_tokens"]["<s>"].update(tokens=[]),
    "long template": lambda state: state["post_processor"].update(single=state["post_processor"]["single"] * 100_000),
    "pieces of length 0": lambda state: state.update(pre_tokenizer={"type": "FixedLength", "length": 0}),
    "(a+)+$": _split("(a+)+$"),
    "(a|aa)+$": _split("(a|aa)+$"),
    "nested counts": _split("((a{1,1000}){1,1000}){1,1000}"),
    "deep pattern": _split("(" * 100_000 + ")" * 100_000),
    "growth": _replaced(9, "a" * 16),
    "long growth": _replaced(1, "a" * 10_000_000),
    "prepend": lambda state: state.update(normalizer={"type": "Prepend", "prepend": "p" * 50_000_000}),
    "map of 4 GB": _map(b"\xff\xff\xff\xff"),
    "map of nothing": _map(b""),
    "odd map": _map((15).to_bytes(4, "little") + b"\xff" * 15 + b"abc"),
    "long token": _unigram(["a", 0.0], ["a" * 2_000_000, -1.0]),
    "long added token": lambda state: state["added_tokens"][0].update(content="a" * 2_000_000),
    "deep": lambda state: state.update(normalizer=json.loads("[" * 99 + "]" * 99)),
    "key twice": lambda state: None,
    "NaN": lambda state: state["model"].update(dropout=float("nan")),
    "no object": lambda state: state.clear(),
}


def _uses(directory: Path) -> None:
    """Loads a tokenizer, and does with it what generating does."""
    tokenizer = Tokenizer.load(directory)
    tokenizer.decode(tokenizer.encode(_TEXT))
    tokenizer.serialized()


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yields each object or list with each of its keys."""
    for key in list(value) if isinstance(value, dict) else range(len(value)):
        yield value, key
        if isinstance(value[key], dict | list):
            yield from _places(value[key])


def _drawn(random_: random.Random) -> dict[str, Any]:
    state = copy.deepcopy(plain(random_.choice(("BPE", "WordPiece", "WordLevel", "Unigram"))))
    values = (
        *(0, 1, -1, 255, 1 << 16, (1 << 24) - 1, 1 << 24, 1 << 31, (1 << 32) - 1, 1 << 63, (1 << 64) - 1, 1 << 64),
        *(0.5, -1e308, float("nan"), "", "a", "a" * 3000, "a" * 200_000, None, True, [], {}, [[]], [0] * 200, ["a", 1]),
    )
    for _ in range(random_.randint(1, 3)):
        inner, key = random_.choice([*_places(state)])
        inner[key] = copy.deepcopy(random_.choice(values))
    return state


def main(mode: str, seed: int = 0, count: int = 0) -> None:
    """Reads the files of a mode."""
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    resource.setrlimit(resource.RLIMIT_CPU, (_SECONDS, _SECONDS))
    random_ = random.Random(seed)
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "tokenizer.json"
        names = list(CASES) if mode == "cases" else [f"drawn {index}" for index in range(count)]
        for case in names:
            state = plain() if mode == "cases" else _drawn(random_)
            if mode == "cases":
                CASES[case](state)
            text = json.dumps(state)
            path.write_text(text.replace('"version"', '"model": {}, "version"') if case == "key twice" else text)
            print(f"{case}: ", end="", flush=True)
            try:
                _uses(path.parent)
            except TapelineError as error:
                print(f"{type(error).__name__}: {error!s:.300}".replace("\n", " "), flush=True)
            else:
                print("ok", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
