"""Errors that encodings cause in a matrix's outputs, estimated on some of its rows."""

from collections.abc import Iterable
from typing import Final

import numpy as np

from lang_core import Encoding

_ROWS: Final = 48
_BLOCK: Final = 32
_STEPS: Final = 15  # of a 4-bit encoding


def noise(weights: np.ndarray, seed: int) -> np.ndarray:
    """Returns noise f32 of the shape of weights [.., K], as large as rounding to 4 bits in blocks of 32."""
    generator = np.random.default_rng(seed)
    blocks = weights.reshape(-1, _BLOCK)
    steps = (blocks.max(axis=1) - blocks.min(axis=1)) / np.float32(_STEPS)
    drawn = generator.random(blocks.shape, np.float32)
    drawn -= np.float32(0.5)
    drawn *= steps[:, np.newaxis]
    return drawn.reshape(weights.shape)


def sampled_rows(rows: int, chosen: np.ndarray | None) -> np.ndarray:
    """Returns numbers of rows: some of the chosen ones, else evenly spaced ones."""
    numbers = np.arange(rows) if chosen is None else np.unique(chosen)
    return numbers[:: max(1, len(numbers) // _ROWS)][:_ROWS]


def output_error(change: np.ndarray, inputs: np.ndarray | None) -> float:
    """Returns the squared error of the outputs of inputs [n, K] if rows [m, K] change; of the rows if None."""
    outputs = change if inputs is None else inputs @ change.T
    return float(np.square(outputs, dtype=np.float64).sum())


def encoding_errors(
    rows: np.ndarray, inputs: np.ndarray | None, importance: np.ndarray | None, encodings: Iterable[Encoding]
) -> dict[str, float]:
    """Returns the squared error of the outputs per encoding; without encodings that do not take a value."""
    errors: dict[str, float] = {}
    largest = float(np.abs(rows).max(initial=0))
    for encoding in encodings:
        if encoding.quantizer is not None and encoding.takes(rows.shape) and largest <= encoding.quantizer.largest:
            change = encoding.unpacked(encoding.pack(rows, importance)) - rows
            errors[encoding.name] = output_error(change, inputs)
    return errors
