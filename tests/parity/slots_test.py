"""Rows of caches that requests share: each says what transformers says, whatever the others do."""

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lang_core import ConfigError
from tests.goldens.cases import CASES, GoldenCase
from tests.goldens.golden_files import read_golden
from tests.goldens.samples import SAMPLE
from tests.parity._eager_slots import EagerSlots
from tests.parity._golden_models import at_length, opened, relative_error
from transformer_core.models import entry_points

_TOLERANCE = 2e-4
_SLOTS = 5


def _pieces(prompt: list[int]) -> list[list[int]]:
    """Cuts a prompt such that pieces are padded."""
    cuts = sorted({0, min(3, len(prompt)), max(0, len(prompt) - 2), len(prompt)})
    return [prompt[begin:end] for begin, end in itertools.pairwise(cuts)]


def _filled(slots: EagerSlots, prompt: list[int], row: int) -> Any:
    """Fills a row with a prompt, after another one that leaves its traces; returns the last prediction."""
    slots.prefill_row(prompt[::-1], row, 0)
    slots.clear_row(row)
    position, prediction = 0, None
    for piece in _pieces(prompt):
        prediction = slots.prefill_row(piece, row, position)
        position += len(piece)
    return prediction


@pytest.mark.parametrize("caches", ["whole", "ring"])
@pytest.mark.parametrize("case", SAMPLE.values(), ids=SAMPLE)
def test_rows_say_what_transformers_says(case: GoldenCase, caches: str, tmp_path: Path) -> None:
    golden = read_golden(case.name)
    prompt, other = [int(token) for token in golden.prompt[0]], [int(token) for token in golden.prompt[-1]][1:] or [1]
    length, steps = len(prompt), 4
    with opened(case, tmp_path) as (model, ctx):
        if caches == "ring" and not any(model.config.windows):
            return  # whole then too
        sizes: Any = {"sequence": length, "max_sequence": length + steps, "verify_tokens": steps}
        slots = EagerSlots(entry_points(model, slots=_SLOTS, window_caches=caches, **sizes), ctx)
        _filled(slots, other, 2)
        prediction = _filled(slots, prompt, 3)
        expected = golden.logits[0]
        if model.config.rope.scaling.depends_on_length:  # frequencies of slots are those of the capacity
            whole: Any = np.array([[*prompt, *golden.tokens[0, : steps - 1]]], np.int32)
            expected = at_length(model, length + steps)(ctx, whole).numpy()[0, length - 1 :]
        slots.copy_row(3, 0)
        slots.copy_row(3, 1)
        scored = slots.verify_row([int(token) for token in golden.tokens[0, : steps - 1]], 1, length)
        for step, line in enumerate(scored, 1):
            assert relative_error(line.logits(), expected[step]) < _TOLERANCE, f"scored, step {step}"
        for step in range(steps):
            logits, token = prediction.logits(), int(golden.tokens[0, step])
            assert relative_error(logits, expected[step]) < _TOLERANCE, f"step {step}"
            copied, _, prediction = slots.decode(
                (0, 2, 3), (token, other[step % len(other)], token), (length + step, len(other) + step, length + step)
            )
            if step % 2:  # rows that rest
                before = {name: array.copy() for name, array in slots.caches.items()}
                slots.decode((2,), (1,), (len(other) + step + 1,))
                rest = [0, 1, 3, 4]
                assert all(np.array_equal(before[name][rest], array[rest]) for name, array in slots.caches.items())
                slots.caches = before
            np.testing.assert_array_equal(copied.logits(), prediction.logits())


def test_slots_choose_their_own_sizes_and_names(tmp_path: Path) -> None:
    with opened(CASES["llama_gqa"], tmp_path) as (model, _):
        points = entry_points(model, slots=6, sequence=40, max_sequence=48)
        names = [point.name for point in points]
        assert names == [
            *("prefill_row", "prefill_row_32", "prefill_row_8"),
            *("decode", "decode_1", "decode_2", "decode_4", "copy_row"),
        ]
        shapes = [point.arguments[0].spec.shape for point in points[:-1]]
        assert shapes == [(1, 40), (1, 32), (1, 8), (6, 1), (1, 1), (2, 1), (4, 1)]
        points = entry_points(model, slots=2, sequence=8, max_sequence=48, verify_tokens=5)
        score = next(point for point in points if point.name == "verify_row")
        assert [argument.spec.shape for argument in score.arguments[:4]] == [(1, 5), (), (), ()]
        for wrong in ({"batch": 2}, {"positions": "per_row"}, {"names": ["decode"]}):
            given: Any = wrong
            with pytest.raises(ConfigError, match="slots: the entry points of slots have names, batches"):
                entry_points(model, slots=2, **given)
        with pytest.raises(ConfigError, match="slots: expected 1 or more; found 0"):
            entry_points(model, slots=0)
        with pytest.raises(
            ConfigError, match="verify_tokens: expected at most 48, the positions that caches hold; found 49"
        ):
            entry_points(model, slots=2, sequence=8, max_sequence=48, verify_tokens=49)
