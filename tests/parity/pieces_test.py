"""Prompts in drawn pieces, in whole caches and in rings, against transformers' logits of the prompt in one pass."""

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.goldens.cases import GoldenCase
from tests.goldens.golden_files import read_golden
from tests.goldens.samples import SAMPLE
from tests.parity._golden_models import empty_caches, opened, places, relative_error
from transformer_core.models import entry_points

_TOLERANCE = 2e-4


@pytest.mark.parametrize("case", SAMPLE.values(), ids=SAMPLE)
def test_logits_after_every_piece(case: GoldenCase, tmp_path: Path) -> None:
    golden, rng = read_golden(case.name), random.Random(case.name)
    batch, length = golden.prompt.shape
    prompt: Any = golden.prompt.astype(np.int32)
    with opened(case, tmp_path) as (model, ctx):
        for caches in ("whole", "ring") if any(model.config.windows) else ("whole",):
            most = rng.randint(1, max(1, length - 1))
            sizes: Any = {"batch": batch, "sequence": most, "max_sequence": length + most, "window_caches": caches}
            (prefill,) = entry_points(model, names=("prefill",), **sizes)
            held, start = empty_caches(prefill), 0
            while start < length:
                count = rng.randint(1, min(most, length - start))
                piece: Any = np.full((batch, most), 1, np.int32)
                piece[:, :count] = prompt[:, start : start + count]
                results = prefill(ctx, piece, *places(prefill, start, count - 1, length=length), *held)
                start += count
                actual, expected = results["logits"].numpy(), golden.prompt_logits[:, start - 1]
                assert relative_error(actual, expected) < _TOLERANCE, f"{caches}, {most} tokens a piece, at {start}"
                held = [results[a.name].numpy() for a in prefill.arguments if a.alias_result]
