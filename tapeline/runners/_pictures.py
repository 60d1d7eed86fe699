"""Entry points that take pictures."""

from typing import Final

import numpy as np

from runtime import Function, Session
from tapeline.bundle import Bundle
from transformer_core import ENCODE_IMAGE, PREFILL_EMBEDDINGS, PREFILL_EMBEDDINGS_ROW


def takes_pictures(bundle: Bundle) -> bool:
    """Returns whether a bundle's prompts may have pictures."""
    points = {point.name for point in bundle.config.entry_points}
    return ENCODE_IMAGE in points and bool({PREFILL_EMBEDDINGS, PREFILL_EMBEDDINGS_ROW} & points)


class ImageEncoder:
    """``encode_image`` of a bundle, for one image or tile at a time."""

    def __init__(self, bundle: Bundle, session: Session) -> None:
        """Takes the entry point."""
        model = bundle.config.model
        self._function: Final = session.function(ENCODE_IMAGE)
        self._spec: Final = bundle.entry_point(ENCODE_IMAGE).arguments[0].spec
        self._vision: Final = model["vision"] if "merge" in model.get("vision", {}) else None

    def __call__(self, pixels: np.ndarray) -> np.ndarray:
        """Returns the embeddings f32 [T', D] of pixels f32 [3, height, width]; with places in images of any size."""
        if self._vision is None:
            return padded_call(self._function, pixels[None], self._spec.shape[0])[0]
        (side, _), merge = self._vision["patch"], self._vision["merge"]
        batch, _, values = self._spec.shape
        grid = np.full((batch, 2), merge, np.int32)
        grid[0] = pixels.shape[1] // side, pixels.shape[2] // side
        patches = np.zeros(self._spec.shape, np.float32)
        patches[0, : grid[0].prod()] = squares_of_patches(pixels, side, merge).reshape(-1, values)
        return self._function(patches, grid)[0].numpy()[0, : grid[0].prod() // merge**2]


def squares_of_patches(pixels: np.ndarray, side: int, merge: int) -> np.ndarray:
    """Returns the patches [N, C * side * side] of pixels [C, height, width], square by square of ``merge * merge``.

    >>> squares_of_patches(np.arange(8).reshape(1, 2, 4), 1, 2).ravel().tolist()
    [0, 1, 4, 5, 2, 3, 6, 7]
    """
    channels, height, width = pixels.shape
    rows, columns = height // side // merge, width // side // merge
    apart = pixels.reshape(channels, rows, merge, side, columns, merge, side)
    return apart.transpose(1, 4, 2, 5, 0, 3, 6).reshape(-1, channels * side * side)


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
