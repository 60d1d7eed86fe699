"""Tokenizers of GGUF metadata: an input is the JSON of the metadata's fields."""

import json
from pathlib import Path
from random import Random

from tapeline.text import Tokenizer, gguf_tokenizer
from tapeline.text import _samples_testing as samples
from tests.fuzz._json_mutations import mutate_json
from tests.fuzz._target import Target

_TEXTS = ("the tape <s> 12", "é🙂")
_VALUES = (
    "llama",
    "gpt2",
    "bert",
    "t5",
    "qwen2",
    "llama-bpe",
    "default",
    "▁",
    "<0x41>",
    "<s>",
    "a b",
    1,
    2,
    3,
    4,
    5,
    6,
)
_KEYS = tuple(
    f"tokenizer.ggml.{name}"
    for name in ("model", "pre", "scores", "token_type", "merges", "bos_token_id", "eos_token_id", "add_bos_token")
)


def _seeds() -> list[bytes]:
    further = {"ggml.eos_token_id": 2, "ggml.add_eos_token": True}
    made = [samples.metadata_of(make(), **further) for make in (samples.byte_level, samples.byte_fallback)]
    return [json.dumps(fields).encode() for fields in made]


def _mutate(data: bytes, draw: Random) -> bytes:
    return mutate_json(data, draw, _VALUES, _KEYS)


def _run(data: bytes) -> bool:
    try:
        fields = json.loads(data)
    except (ValueError, RecursionError):
        return False
    if not isinstance(fields, dict):
        return False
    made = gguf_tokenizer(fields, "some.gguf")
    if made is None:
        return False
    tokenizer = Tokenizer(Path("tokenizer.json"), made[0])
    for text in _TEXTS:
        stream = tokenizer.stream()
        for token_id in tokenizer.encode(text):
            stream.push(token_id)
        stream.finish()
    return True


TARGET = Target(seeds=_seeds, run=_run, mutate=_mutate)
