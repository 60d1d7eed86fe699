"""Quantizers are not worse than ggml's: errors of rows, as the gguf package unpacks them."""

import json
from typing import Any

import numpy as np
import pytest
from gguf import GGMLQuantizationType, quants

from lang_core import ENCODINGS
from tests.goldens.golden_files import DATA
from tests.goldens.quantizer_weights import ENCODINGS as NAMES
from tests.goldens.quantizer_weights import KINDS, drawn_weights, row_errors

_GOLDEN: dict[str, Any] = json.loads((DATA / "quantizers.json").read_text())
_ROUNDED = 1e-5  # the recorded errors have six digits
_SEARCHED = ("q2_k", "q3_k", "q4_k", "q5_k", "q6_k", "iq4_nl", "iq4_xs")


def _errors(name: str, kind: str, weighed: bool) -> tuple[np.ndarray, np.ndarray]:
    """Returns our errors of rows and ggml's."""
    weights, importance = drawn_weights(kind)
    squares = importance if weighed else None
    packed = ENCODINGS[name].pack(weights, squares).view(np.uint8)
    restored = quants.dequantize(packed, GGMLQuantizationType[name.upper()])
    np.testing.assert_array_equal(restored, ENCODINGS[name].unpacked(packed.view(np.int8)))
    theirs = _GOLDEN["errors"][f"{name} {kind}{' weighed' if weighed else ''}"]
    return row_errors(weights, restored, squares), np.array(theirs)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", NAMES)
def test_errors_are_not_above_ggmls(name: str, kind: str) -> None:
    """Without importance no row's error is above ggml's; with importance the whole is below, and rows are near it."""
    ours, theirs = _errors(name, kind, weighed=False)
    assert (ours <= theirs * (1 + _ROUNDED)).all(), (ours / theirs).max()
    if name in _SEARCHED:
        assert ours.sum() < 0.98 * theirs.sum()
    ours, theirs = _errors(name, kind, weighed=True)
    assert ours.sum() < 0.99 * theirs.sum()
    assert (ours <= theirs * 1.05).all(), (ours / theirs).max()


@pytest.mark.parametrize("name", NAMES)
def test_extreme_blocks(name: str) -> None:
    """Blocks of zeros, of one number, of one sign, with one outlier, and of numbers that f16 rounds to 0."""
    encoding = ENCODINGS[name]
    weights = np.zeros((6, 512), np.float32)
    weights[1] = 0.25
    weights[2] = -np.abs(np.random.default_rng(3).standard_normal(512))
    weights[3, 17] = -7.5
    weights[4] = 1e-12 * np.random.default_rng(4).standard_normal(512)
    weights[5, 300:] = np.random.default_rng(5).standard_normal(212)
    importance = np.ones(512, np.float32)
    importance[:64] = 0
    for squares in (None, importance):
        restored = encoding.unpacked(encoding.pack(weights, squares))
        assert np.isfinite(restored).all()
        assert not restored[0].any()
        assert np.abs(restored[3, :17]).max() < 1e-2 * 7.5  # tables lack a 0
        largest = np.abs(weights).max(axis=1)
        assert (np.abs(restored - weights)[:, 64:].max(axis=1) <= 0.3 * largest + 1e-6).all()
        np.testing.assert_allclose(restored[1, 64:], 0.25, rtol=0.04)


@pytest.mark.parametrize("name", _SEARCHED)
def test_groups_and_threads_do_not_matter(name: str) -> None:
    """Packs rows alike, whatever rows are packed with them: exports pack a few at a time."""
    weights, importance = drawn_weights("heavy")
    whole = ENCODINGS[name].pack(weights, importance)
    parts = [ENCODINGS[name].pack(weights[start : start + 5], importance) for start in range(0, len(weights), 5)]
    np.testing.assert_array_equal(np.concatenate(parts), whole)
