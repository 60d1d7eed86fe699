"""Packed blocks unpacked by JAX against ``lang_core``'s reading, which is held to the gguf package's."""

import jax
import numpy as np
import pytest

from lang_core import ENCODINGS
from run_jax._packed import unpacked


@pytest.mark.parametrize("name", ENCODINGS)
def test_every_layout_is_read_as_the_reference_reads_it(name: str) -> None:
    encoding = ENCODINGS[name]
    layout = encoding.layout
    packed = np.random.default_rng(5).integers(-128, 128, (3, 5 * layout.bytes)).astype(np.int8)
    if layout.exponent:  # JAX's CPU flushes what f32 has no leading bit for
        packed[:, layout.scale :: layout.bytes] = np.random.default_rng(6).integers(100, 128, (3, 5))
    with np.errstate(all="ignore"):
        wanted = encoding.unpacked(packed)
    weights = np.asarray(jax.jit(unpacked, static_argnums=1)(packed, encoding))
    assert weights.shape == wanted.shape == (3, 5 * layout.size)
    np.testing.assert_allclose(weights, wanted, rtol=3e-7, atol=1e-6 * np.abs(wanted[np.isfinite(wanted)]).max())
