"""The demo model's weights before training."""

import math
from collections.abc import Iterator
from typing import Final

import numpy as np

from lang_core import TensorSpec

_SEED: Final = 20
_BITS: Final = 24  # what a float32 holds exactly
_SPREAD: Final = 0.05


def initial_weights(specs: dict[str, TensorSpec]) -> Iterator[tuple[str, np.ndarray]]:
    """Yields each parameter's name and its f32 values before training, always the same ones.

    Vectors (norm weights) are 1; matrices are uniform with a standard deviation of 0.05. No library's stream of random
    floats is used, because only the streams of bits are stable over NumPy's versions.
    """
    bits = np.random.PCG64(_SEED)
    for name, spec in specs.items():
        if spec.ndim == 1:
            yield name, np.ones(spec.shape, np.float32)
            continue
        raw = bits.random_raw(spec.size) >> np.uint64(64 - _BITS)
        centred = raw.astype(np.float64) * 2.0 ** (1 - _BITS) - 1  # in [-1, 1), with variance 1/3
        yield name, (centred * (_SPREAD * math.sqrt(3))).astype(np.float32).reshape(spec.shape)
