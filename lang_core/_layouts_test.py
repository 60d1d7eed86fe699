"""Layouts against the gguf package's dequantisation, on any bytes."""

import dataclasses
import doctest
import itertools

import numpy as np
import pytest
from gguf import GGMLQuantizationType, quants

from lang_core import ENCODINGS, LAYOUTS, _layouts
from lang_core._layouts import unpacked_blocks


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_layout_says_what_the_reference_reads(name: str):
    layout = LAYOUTS[name]
    blocks = np.random.default_rng(7).integers(0, 256, (500, layout.bytes)).astype(np.uint8)
    with np.errstate(all="ignore"):
        weights = unpacked_blocks(layout, blocks)
        expected = quants.dequantize(blocks, GGMLQuantizationType[name.upper()])
    assert weights.shape == (500, layout.size)
    numbers = ~np.isnan(expected)
    np.testing.assert_array_equal(np.isnan(weights), ~numbers)
    assert weights[numbers].tobytes() == expected[numbers].tobytes()


@pytest.mark.parametrize("name", LAYOUTS)
def test_every_byte_of_a_block_is_described(name: str):
    """A bit that is flipped in a block changes a weight."""
    layout = LAYOUTS[name]
    block = np.random.default_rng(3).integers(1, 255, (1, layout.bytes)).astype(np.uint8)
    for place in layout.halves:
        block[:, place : place + 2] = np.array([1.5], np.float16).view(np.uint8)
    weights = unpacked_blocks(layout, block)
    for byte in range(layout.bytes):
        changed = block.copy()
        changed[0, byte] ^= 1
        assert (unpacked_blocks(layout, changed) != weights).any(), byte


def test_halves_are_the_places_of_the_f16s():
    assert {name: encoding.layout.halves for name, encoding in ENCODINGS.items()} == {
        **dict.fromkeys(("q8_0", "q4_0", "q5_0", "iq4_nl", "iq4_xs"), (0,)),
        **dict.fromkeys(("q4_1", "q5_1", "q4_k", "q5_k"), (0, 2)),
        "q2_k": (80, 82),
        "q3_k": (108,),
        "q6_k": (208,),
        "mxfp4": (),
    }


# f16s that scales may be and seldom are: zeros, denormals, the largest number, infinities, NaN.
_SPECIAL = (0, 0x8000, 1, 0x3FF, 0x83FF, 0x400, 0x7BFF, 0xFBFF, 0x7C00, 0xFC00, 0x7E00, 0x7C01)


@pytest.mark.parametrize("name", LAYOUTS)
def test_special_scales_are_read_as_the_reference_reads_them(name: str):
    layout = LAYOUTS[name]
    pairs = list(itertools.product(_SPECIAL, repeat=max(1, len(layout.halves))))
    blocks = np.random.default_rng(8).integers(0, 256, (len(pairs), layout.bytes)).astype(np.uint8)
    for number, place in enumerate(layout.halves):
        halves = np.array([pair[number] for pair in pairs], np.uint16)
        blocks[:, place : place + 2] = halves[:, np.newaxis].view(np.uint8)
    if layout.exponent:
        blocks = np.repeat(blocks[:1], 256, axis=0)
        blocks[:, layout.scale] = range(256)
    with np.errstate(all="ignore"):
        weights = unpacked_blocks(layout, blocks)
        expected = quants.dequantize(blocks, GGMLQuantizationType[name.upper()])
    numbers = ~np.isnan(expected)
    np.testing.assert_array_equal(np.isnan(weights), ~numbers)
    assert weights[numbers].tobytes() == expected[numbers].tobytes()


@pytest.mark.parametrize("name", LAYOUTS)
def test_blocks_with_scales_that_are_no_numbers_are_found(name: str):
    encoding = ENCODINGS[name]
    blocks = np.random.default_rng(9).integers(
        0, 256, (3, 5000 // encoding.block_bytes, encoding.block_bytes), np.uint8
    )
    for place in encoding.layout.halves:
        halves = np.random.default_rng(place).choice(np.array(_SPECIAL, np.uint16), blocks.shape[:2])
        blocks[..., place : place + 2] = halves[..., np.newaxis].view(np.uint8)
    damaged = encoding.nonfinite(blocks.view(np.int8).reshape(3, -1))
    if encoding.layout.exponent:
        expected = blocks[..., 0] == 255
    else:
        halves = [blocks[..., place : place + 2].copy().view(np.float16)[..., 0] for place in encoding.layout.halves]
        expected = ~np.isfinite(halves).all(axis=0)
    assert damaged.tolist() == expected.tolist()


def test_an_encoding_is_its_layout():
    assert list(ENCODINGS) == list(LAYOUTS)
    for encoding in ENCODINGS.values():
        layout = encoding.layout
        assert (encoding.block, encoding.block_bytes) == (layout.size, layout.bytes)
        assert encoding.bits == sum(plane.bits for plane in layout.planes)
        assert layout is LAYOUTS[encoding.name]
        assert encoding != dataclasses.replace(encoding, layout=dataclasses.replace(layout, offset=3))


def test_doctest():
    assert doctest.testmod(_layouts) == (0, 2)
