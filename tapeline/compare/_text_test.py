"""A comparison as a table."""

import math
from typing import Any

import numpy as np

from lang_core import TensorSpec
from runtime.dump import TensorLabel
from tapeline.compare import ComparedTensor, Comparison, compare_tensors, comparison_text, error_of, left_out

_ONES = np.ones((2, 3), np.float32)


def _label(name: str, when: Any = "during", **fields: Any) -> TensorLabel:
    return TensorLabel(step=0, entry_point="decode", name=name, direction="TAG", when=when, **fields)


def _tensor(name: str, error: float = 0.0, **fields: Any) -> ComparedTensor:
    changed = _ONES.copy()
    changed[0, 0] += error
    return compare_tensors(_label(name, **fields), changed, _ONES, 1e-4)


def _comparison(*tensors: ComparedTensor) -> Comparison:
    return Comparison("bundle on local-task", "the eager context", 1e-4, tensors)


def _rows(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines()]


def test_a_line_per_block_has_its_worst_tensor() -> None:
    text = comparison_text(
        _comparison(
            _tensor("layers.0.q"),
            _tensor("layers.1.q", 0.25),
            _tensor("layers.1.k", 0.5),
            _tensor("logits", when="after"),
        ),
        every=False,
    )
    rows = _rows(text)
    assert rows[1][:5] == ["0", "decode", "layers.0", "1", "layers.0.q"]
    assert rows[2][:8] == ["0", "decode", "layers.1", "2", "2", "layers.1.k", "0.5", "0.5"]
    assert rows[3][:5] == ["0", "decode", "-", "1", "logits"]
    assert "of 4 tensors 2 agree, 2 differ (tolerance 1e-04)" in text
    assert "first divergence: block layers.1: tensor 'layers.1.q'" in text


def test_a_line_per_tensor_has_its_state_and_iteration() -> None:
    rows = _rows(comparison_text(_comparison(_tensor("layers.0.q", iteration=2), _tensor("y", 1.0)), every=True))
    assert rows[1][:6] == ["0", "decode", "layers.0.q", "#2", "during", "agrees"]
    assert rows[2][:7] == ["0", "decode", "y", "during", "differs", "1", "1"]


def test_tensors_of_one_side_are_listed_up_to_a_limit() -> None:
    spec = TensorSpec((2, 3), "f32")
    missing = [left_out(_label(f"t{number}"), spec, missing=True) for number in range(22)]
    text = comparison_text(_comparison(_tensor("y"), *missing, left_out(_label("z"), spec, missing=False)), every=False)
    assert "not in bundle on local-task: t0, t1, " in text
    assert "t19, and 2 more\n" in text
    assert "not in the eager context: z\n" in text
    assert "of 24 tensors 1 agree, 0 differ, 23 are on one side only" in text


def test_the_error_of_what_cannot_be_compared_is_infinite() -> None:
    unlike = compare_tensors(_label("y"), _ONES[:1], _ONES, 1e-4)
    assert error_of(unlike) == error_of(_tensor("y", math.nan)) == math.inf
    assert error_of(_tensor("y", 0.25)) == 0.25
    assert "f32[1,3], not f32[2,3]" in comparison_text(_comparison(unlike), every=True)
