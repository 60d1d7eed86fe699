"""Entry points that take pictures."""

import numpy as np

from runtime import Function
from tapeline.bundle import Bundle
from transformer_core import ENCODE_IMAGE, PREFILL_EMBEDDINGS, PREFILL_EMBEDDINGS_ROW


def takes_pictures(bundle: Bundle) -> bool:
    """Returns whether a bundle's prompts may have pictures."""
    points = {point.name for point in bundle.config.entry_points}
    return ENCODE_IMAGE in points and bool({PREFILL_EMBEDDINGS, PREFILL_EMBEDDINGS_ROW} & points)


def padded_call(function: Function, pixels: np.ndarray, batch: int, result: int = 0) -> np.ndarray:
    """Runs an entry point for B arrays of pixels on up to as many, and returns their rows of a result.

    Args:
        function: the entry point.
        pixels: f32 [pictures, 3, height, width].
        batch: B.
        result: index of the result [B, ..].

    Returns:
        Rows [pictures, ..] of the result.
    """
    whole = np.zeros((batch, *pixels.shape[1:]), np.float32)
    whole[: len(pixels)] = pixels
    return function(whole)[result].numpy()[: len(pixels)]
