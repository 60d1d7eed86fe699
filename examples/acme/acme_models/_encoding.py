"""The encoding ``acme_q4``: blocks of 32 weights with an f16 scale and sixteen values, denser near 0."""

import numpy as np

from lang_core import BlockLayout, Plane, Quantizer, register_encoding

_VALUES = (-127, -96, -71, -51, -35, -22, -12, -4, 4, 12, 22, 35, 51, 71, 96, 127)


def _pack(blocks, packed):
    """Packs f32 [n, 32] into u8 [n, 18]: the scale, then sixteen bytes of two integers each."""
    scale = (np.abs(blocks).max(axis=1) / 127).astype(np.float16)
    packed[:, :2] = scale[:, None].view(np.uint8)
    divisor = np.where(scale == 0, 1, scale).astype(np.float32)
    distance = np.abs(blocks[:, :, None] / divisor[:, None, None] - np.array(_VALUES, np.float32))
    integers = distance.argmin(axis=2).astype(np.uint8)
    packed[:, 2:] = integers[:, :16] | integers[:, 16:] << 4


ACME_Q4 = register_encoding(
    "acme_q4", BlockLayout(32, 18, (Plane(2, 4, 16),), table=_VALUES), Quantizer(_pack, largest=65504.0 * 127)
)
