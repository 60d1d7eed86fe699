"""Layouts of ggml's blocks (``ggml-common.h``), as descriptions of their bytes."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from lang_core._layouts import BitField, BlockLayout, Plane, SubScales

Q8_0: Final = BlockLayout(32, 34, (Plane(2, 8, 32),))
Q4_0: Final = BlockLayout(32, 18, (Plane(2, 4, 16),), offset=8)
# ggml's get_scale_min_k4: six bits each, of eight scales, then of eight minima. Words 1 and 2 hold the first four of
# each and the upper bits of the others, whose lower bits are in word 3.
SIX_BITS: Final = SubScales(
    0,
    (
        BitField((1, 3, 2, 3), (0, 0, 0, 4), (0x3F, 0x0F, 0x3F, 0x0F)),
        BitField((1, 1, 2, 2), (2, 2, 2, 2), (0, 0x30, 0, 0x30)),
    ),
)
Q4_K: Final = BlockLayout(256, 144, (Plane(16, 4, 32),), minimum=2, sub_scales=SIX_BITS)
Q6_K: Final = BlockLayout(
    256,
    210,
    (Plane(0, 4, 64), Plane(128, 2, 32, up=4)),
    offset=32,
    scale=208,
    scaled=16,
    sub_scales=SubScales(192, signed=True),
)
Q2_K: Final = BlockLayout(
    256,
    84,
    (Plane(16, 2, 32),),
    scale=80,
    scaled=16,
    minimum=82,
    sub_scales=SubScales(planes=(Plane(0, 4, 16),)),  # of each byte the low bits are a scale, the high ones a minimum
)
# The stored third bit is set if 4 is not to be subtracted. Sixteen scales of six bits: four in the low or high bits
# of eight bytes, two in four bytes.
Q3_K: Final = BlockLayout(
    256,
    110,
    (Plane(32, 2, 32), Plane(0, 1, 32, up=2)),
    offset=4,
    scale=108,
    scaled=16,
    sub_scales=SubScales(planes=(Plane(96, 4, 8), Plane(104, 2, 4, up=4)), offset=32),
)
Q4_1: Final = BlockLayout(32, 20, (Plane(4, 4, 16),), minimum=2, adds_minimum=True)
# Fifth bits are in the order of the integers; those of Q5_K are 32 apart.
Q5_0: Final = BlockLayout(32, 22, (Plane(6, 4, 16), Plane(2, 1, 1, up=4)), offset=16)
Q5_1: Final = BlockLayout(32, 24, (Plane(8, 4, 16), Plane(4, 1, 1, up=4)), minimum=2, adds_minimum=True)
Q5_K: Final = BlockLayout(256, 176, (Plane(48, 4, 32), Plane(16, 1, 32, up=4)), minimum=2, sub_scales=SIX_BITS)
# ggml's kvalues_iq4nl: sixteen values, denser where weights of a normal distribution are.
NORMAL_VALUES: Final = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)
IQ4_NL: Final = BlockLayout(32, 18, (Plane(2, 4, 16),), table=NORMAL_VALUES)
IQ4_XS: Final = BlockLayout(
    256,
    136,
    (Plane(8, 4, 16),),
    sub_scales=SubScales(planes=(Plane(4, 4, 1), Plane(2, 2, 1, up=4)), offset=32),
    table=NORMAL_VALUES,
)
# Twice the values of E2M1 (OCP Microscaling Formats 1.0); d is half of the block's power of two.
TWICE_E2M1: Final = (0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12)
MXFP4: Final = BlockLayout(32, 17, (Plane(1, 4, 16),), table=TWICE_E2M1, exponent=True)

LAYOUTS: Final[Mapping[str, BlockLayout]] = MappingProxyType(
    {
        "q8_0": Q8_0,
        "q4_0": Q4_0,
        "q4_1": Q4_1,
        "q5_0": Q5_0,
        "q5_1": Q5_1,
        "q2_k": Q2_K,
        "q3_k": Q3_K,
        "q4_k": Q4_K,
        "q5_k": Q5_K,
        "q6_k": Q6_K,
        "iq4_nl": IQ4_NL,
        "iq4_xs": IQ4_XS,
        "mxfp4": MXFP4,
    }
)
"""Layouts by ggml's name in lower case; each is an encoding of packed weights."""
