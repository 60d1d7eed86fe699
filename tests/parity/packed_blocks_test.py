"""Blocks are packed and unpacked bit for bit as by the gguf package."""

from typing import Final

import ml_dtypes
import numpy as np
import pytest
from gguf import GGMLQuantizationType, quants
from hypothesis import given, settings
from hypothesis import strategies as st

from lang_core import BLOCK, ENCODINGS, Encoding, TensorSpec, quantizable

_EACH: Final = pytest.mark.parametrize("encoding", ENCODINGS.values(), ids=list(ENCODINGS))
# Encodings that gguf quantizes; others are packed by a search, whose errors another test holds to llama.cpp's.
_BY_GGUF: Final = [name for name in quantizable() if not name.endswith("_k") and not name.startswith("iq")]
_QUANTIZED: Final = pytest.mark.parametrize("encoding", [ENCODINGS[name] for name in _BY_GGUF], ids=_BY_GGUF)
_DRAWN: Final = settings(deadline=None, derandomize=True, database=None, max_examples=150)


def _kind(encoding: Encoding) -> GGMLQuantizationType:
    return GGMLQuantizationType[encoding.name.upper()]


def _block(kind: str, rng: np.random.Generator) -> np.ndarray:
    if kind == "zero":
        return rng.choice(np.array([0.0, -0.0], np.float32), BLOCK)
    if kind == "ties":  # multiples of half of what becomes 1
        return (rng.integers(-127, 128, BLOCK) / 2).astype(np.float32)
    if kind == "one size":  # which of them is the largest decides about Q4_0's sign
        return rng.choice(np.array([1.5, -1.5], np.float32), BLOCK)
    if kind.startswith("edges"):  # a scale of 1, and numbers at and beside halves
        halves = (rng.integers(-7, 8, BLOCK) + 0.5).astype(np.float32)
        block = np.nextafter(halves, rng.choice(np.array([-10, 0, 10], np.float32), BLOCK))
        block[rng.integers(BLOCK)] = {"edges of 127": 127, "edges of 8": -8}[kind]
        return block
    if kind == "middles":  # between numbers of E2M1, and beside them; the largest is at or beside a power of two
        block = np.ldexp(rng.choice(_MIDDLES, BLOCK), rng.integers(-120, 100)) * rng.choice(_SIGNS, BLOCK)
        return np.nextafter(block, rng.choice(np.array([-np.inf, 0, np.inf], np.float32), BLOCK))
    if kind == "least":  # what f32 has no leading bit for, in part
        return np.ldexp(rng.standard_normal(BLOCK), rng.integers(-149, -120)).astype(np.float32)
    if kind == "bf16":  # products with a scale's inverse are often ties
        return rng.standard_normal(BLOCK).astype(ml_dtypes.bfloat16).astype(np.float32)
    exponent = {"normal": 0, "small": -22, "subnormal half": -30, "subnormal": -140, "huge": 20}[kind]
    return np.ldexp(rng.standard_normal(BLOCK), exponent).astype(np.float32).clip(-500_000, 500_000)


_MIDDLES: Final = np.array([0.5, 1.5, 2.5, 3.5, 5, 7, 10, 4, 8, 16], np.float32)
_SIGNS: Final = np.array([-1, 1], np.float32)
_KINDS: Final = (
    "normal", "bf16", "zero", "ties", "edges of 127", "edges of 8", "one size", "small", "subnormal half", "subnormal",
    "huge", "middles", "least",
)  # fmt: skip


@_QUANTIZED
@_DRAWN
@given(kinds=st.lists(st.sampled_from(_KINDS), min_size=1, max_size=6), seed=st.integers(0, 2**32 - 1))
def test_packing_is_the_references(encoding: Encoding, kinds: list[str], seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows = np.concatenate([_block(kind, rng) for kind in kinds]).reshape(1, -1)
    with np.errstate(all="ignore"):
        expected = quants.quantize(rows, _kind(encoding))
    actual = encoding.pack(rows)
    assert actual.view(np.uint8).tobytes() == expected.tobytes()
    assert TensorSpec(actual.shape, "i8") == encoding.packed(TensorSpec(rows.shape, "f32"))


@_EACH
@_DRAWN
@given(shape=st.tuples(st.integers(0, 3), st.integers(1, 4)), seed=st.integers(0, 2**32 - 1))
def test_unpacking_is_the_references(encoding: Encoding, shape: tuple[int, int], seed: int) -> None:
    """Any bytes: infinite scales and NaN, too."""
    rows, blocks = shape
    stored = np.random.default_rng(seed).integers(0, 256, (rows, blocks * encoding.block_bytes)).astype(np.uint8)
    actual = encoding.unpacked(stored.view(np.int8))
    assert (actual.shape, actual.dtype) == ((rows, blocks * encoding.block), np.float32)
    if rows:
        with np.errstate(all="ignore"):
            expected = quants.dequantize(stored, _kind(encoding))
        np.testing.assert_array_equal(np.isnan(actual), np.isnan(expected))
        numbers = ~np.isnan(expected)
        assert actual[numbers].tobytes() == expected[numbers].tobytes(), "bit for bit: -0.0 is not 0.0"


@_QUANTIZED
def test_more_blocks_than_are_packed_at_a_time(encoding: Encoding) -> None:
    """Weights as checkpoints have them; those of bf16 meet the rounding of each step of the arithmetic."""
    rows = np.random.default_rng(5).standard_normal((70, 96 * BLOCK)).astype(ml_dtypes.bfloat16)
    assert encoding.pack(rows).tobytes() == quants.quantize(rows.astype(np.float32), _kind(encoding)).tobytes()
