"""Quantized KV caches: the logits are transformers' with a cache that the gguf package rounds."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lang_core import ConfigError
from tests.goldens.cases import CASES, GoldenCase
from tests.goldens.kv_cache_cases import KV_CACHE_CASES, KV_CACHE_ENCODINGS, kv_cache_path
from tests.parity._eager_slots import EagerSlots
from tests.parity._golden_models import empty_caches, opened, places, relative_error
from transformer_core.models import entry_points

# Rounding to blocks makes a difference in the last bit of a key as large as a step of its block.
_TOLERANCE = 5e-3  # a number between two integers may be rounded to either: 2e-3; unrounded caches are off by 1e-2


@pytest.mark.parametrize("encoding", KV_CACHE_ENCODINGS)
@pytest.mark.parametrize("case", KV_CACHE_CASES, ids=lambda case: case.name)
@pytest.mark.parametrize("form", ["plain", "ring", "slots"])
def test_logits_are_those_of_rounded_entries(case: GoldenCase, encoding: str, form: str, tmp_path: Path) -> None:
    golden = dict(np.load(kv_cache_path(case, encoding)))
    prompt, tokens = golden["prompt"].astype(np.int32), golden["tokens"][0].tolist()
    length = prompt.shape[1]
    with opened(case, tmp_path) as (model, ctx):
        options: Any = {"window_caches": "ring" if form == "ring" else "whole", "kv_cache": encoding}
        logits: list[np.ndarray] = []
        if form == "slots":
            slots = EagerSlots(entry_points(model, slots=3, sequence=4, max_sequence=32, **options), ctx)
            assert {array.dtype for array in slots.caches.values()} == {np.dtype(np.int8)}
            prediction: Any = None
            for start in range(0, length, 4):
                prediction = slots.prefill_row(prompt[0, start : start + 4].tolist(), 1, start)
            logits.append(prediction.logits())
            for position, token in enumerate(tokens[:-1], length):
                (prediction,) = slots.decode((1,), (token,), (position,))
                logits.append(prediction.logits())
        else:
            names = ("prefill", "decode")
            prefill, decode = entry_points(model, names=names, sequence=length, max_sequence=32, **options)
            caches = empty_caches(prefill)
            for entry, ids, position in (
                (prefill, prompt, 0),
                *((decode, np.array([[token]], np.int32), length + i) for i, token in enumerate(tokens[:-1])),
            ):
                last = [length - 1] if entry is prefill else []
                given = (ids, *places(entry, position, *last), *caches)
                result, *kept = entry(ctx, *map(ctx.constant, given)).values()
                caches = [cache.numpy() for cache in kept if cache.numpy().dtype == np.int8]
                logits.append(result.numpy().reshape(-1))
    for step, line in enumerate(logits):
        assert relative_error(line, golden["logits"][0, step]) < _TOLERANCE, f"step {step}"


@pytest.mark.parametrize(
    ("name", "encoding", "message"),
    [
        ("llama_gqa", "q8_0", r"key_cache of 'model.layers.0' has 8 numbers per head, and blocks are of 32"),
        ("llama_gqa", "q5_0", r"kv_cache: expected q8_0 or q4_0; found 'q5_0'"),
        ("deepseek_v3", "q8_0", r"'model.layers.0.* keeps .* that are read as they are: leave out kv_cache"),
    ],
)
def test_caches_that_cannot_be_quantized_are_refused(name: str, encoding: str, message: str, tmp_path: Path) -> None:
    with opened(CASES[name], tmp_path) as (model, _), pytest.raises(ConfigError, match=message):
        entry_points(model, names=("decode",), max_sequence=16, kv_cache=encoding)
