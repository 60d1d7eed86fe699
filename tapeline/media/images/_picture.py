"""A picture in memory."""

from dataclasses import dataclass

import numpy as np

from lang_core import InputError

_WHITE = 255


@dataclass(frozen=True, slots=True)
class Picture:
    """Pixels of a picture.

    Attributes:
        pixels: u8 [height, width, 3], red first.
        transparent: colour that stands for transparency, or None.

    Raises:
        InputError: the array is of another kind, or empty.
    """

    pixels: np.ndarray
    transparent: tuple[int, int, int] | None = None

    def __post_init__(self) -> None:
        pixels = self.pixels
        if pixels.dtype != np.uint8 or pixels.ndim != 3 or pixels.shape[2] != 3 or not pixels.size:
            raise InputError(
                f"picture is {pixels.dtype}{list(pixels.shape)}: expected u8 [height, width, 3], red first"
            )

    def on_white(self) -> np.ndarray:
        """Returns the pixels u8 [height, width, 3], white where they are transparent."""
        if self.transparent is None:
            return self.pixels
        is_clear = (self.pixels == np.array(self.transparent, np.uint8)).all(-1, keepdims=True)
        return np.where(is_clear, np.uint8(_WHITE), self.pixels)
