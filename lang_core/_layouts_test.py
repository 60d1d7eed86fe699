"""Layouts against the gguf package's dequantisation, on any bytes."""

import dataclasses

import numpy as np
import pytest
from gguf import GGMLQuantizationType, quants

from lang_core import ENCODINGS
from lang_core._layouts import SIX_BITS, BlockLayout, Plane, unpacked_blocks

_LAYOUTS = {name: encoding.layout for name, encoding in ENCODINGS.items()} | {
    # Encodings that nothing reads yet: the fifth bits of q5_0 are in the order of the integers, those of q5_k 32 apart.
    "q5_0": BlockLayout(32, 22, (Plane(6, 4, 16), Plane(2, 1, 1, up=4)), offset=16),
    "q4_1": BlockLayout(32, 20, (Plane(4, 4, 16),), minimum=2, adds_minimum=True),
    "q5_1": BlockLayout(32, 24, (Plane(8, 4, 16), Plane(4, 1, 1, up=4)), minimum=2, adds_minimum=True),
    "q5_k": BlockLayout(
        256, 176, (Plane(48, 4, 32), Plane(16, 1, 32, up=4)), offset=0, minimum=2, sub_scales=SIX_BITS
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", _LAYOUTS)
def test_a_layout_says_what_the_reference_reads(name: str):
    layout = _LAYOUTS[name]
    blocks = np.random.default_rng(7).integers(0, 256, (500, layout.bytes)).astype(np.uint8)
    with np.errstate(all="ignore"):
        weights = unpacked_blocks(layout, blocks)
        expected = quants.dequantize(blocks, GGMLQuantizationType[name.upper()])
    assert weights.shape == (500, layout.size)
    numbers = ~np.isnan(expected)
    np.testing.assert_array_equal(np.isnan(weights), ~numbers)
    assert weights[numbers].tobytes() == expected[numbers].tobytes()


@pytest.mark.parametrize("name", ENCODINGS)
def test_every_byte_of_a_block_is_described(name: str):
    """A bit that is flipped in a block changes a weight."""
    layout = ENCODINGS[name].layout
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
        "q8_0": (0,),
        "q4_0": (0,),
        "q4_k": (0, 2),
        "q6_k": (208,),
    }


def test_an_encoding_is_its_layout():
    for encoding in ENCODINGS.values():
        layout = encoding.layout
        assert (encoding.block, encoding.block_bytes) == (layout.size, layout.bytes)
        assert encoding.bits == sum(plane.bits for plane in layout.planes)
        assert encoding != dataclasses.replace(encoding, layout=dataclasses.replace(layout, offset=3))
