"""tokenizer.json: loaded, and used to encode, decode and stream."""

import json
from pathlib import Path
from random import Random

from tapeline.text import Tokenizer
from tapeline.text import _samples_testing as samples
from tests.fuzz._files import written
from tests.fuzz._json_mutations import mutate_json
from tests.fuzz._target import Target

_TEXTS = ("the tape <s> 12", "é🙂")
_SPECIAL = {"id": 300, "content": "<x>", "single_word": False, "lstrip": True, "rstrip": True, "normalized": True}
_VALUES = (
    *("▁", "<0x41>", "<s>", "ByteLevel", "Metaspace", "BPE", "Unigram", "WordPiece", "WordLevel", "Sequence", "Split"),
    {**_SPECIAL, "special": True},
    {"type": "ByteFallback"},
    {"type": "Replace", "pattern": {"Regex": "(a|b)+"}, "content": "c"},
    {"type": "Prepend", "prepend": "▁"},
)
_KEYS = ("type", "vocab", "merges", "added_tokens", "normalizer", "pre_tokenizer", "decoder", "truncation", "padding")


def _seeds() -> list[bytes]:
    made = [samples.byte_level(), samples.byte_fallback()]
    small = {"version": "1.0", "added_tokens": [], "model": {"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "a"}}
    return [*(tokenizer.to_str().encode() for tokenizer in made), json.dumps(small).encode()]


def _mutate(data: bytes, draw: Random) -> bytes:
    return mutate_json(data, draw, _VALUES, _KEYS)


def _run(data: bytes) -> bool:
    tokenizer = Tokenizer.load(Path(written("tokenizer/tokenizer.json", data).parent))
    for text in _TEXTS:
        stream = tokenizer.stream()
        ids = tokenizer.encode(text)
        pieces = [stream.push(token_id) for token_id in ids]
        whole = "".join([*pieces, stream.finish()])
        decoded = tokenizer.decode(ids)
        if whole != decoded:
            raise AssertionError(f"streamed {whole!r}, decoded {decoded!r}")
    return True


TARGET = Target(seeds=_seeds, run=_run, mutate=_mutate)
