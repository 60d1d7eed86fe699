"""Pictures in prompts: embeddings in the places of their tokens, computed when the prompt comes to them, and once."""

import hashlib
import os
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from generation.engine._guard import GuardedModel
from lang_core import InputError, checked_choices

_SECRET: Final = os.urandom(32)
_SIGN: Final = np.int64(np.iinfo(np.int64).min)


@checked_choices
@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class PromptPicture:
    """Picture, or a tile of one, that some tokens of a prompt stand for.

    Attributes:
        pixels: f32 [3, height, width]; with ``order`` the tiles of a picture, [tiles, 3, height, width].
        start: position of its first token.
        stop: position behind its last one.
        whole: whether its tokens run in one call, since they see each other in both directions.
        order: rows i32 [stop - start] of the embeddings of all tiles, one after the other, for each token; -1 of a
            token of text among those of the picture. None if a token has a row each, in their order. With
            ``weights`` i32 [stop - start, rows]: of several rows each.
        weights: f32 [stop - start, rows], by which the rows of a token are multiplied before their sum; None if a
            token has one row.
        digest: SHA-256 of the shape, the pixels, the order and the weights.
    """

    pixels: np.ndarray
    start: int
    stop: int
    whole: bool = False
    order: np.ndarray | None = None
    weights: np.ndarray | None = None
    digest: bytes = field(init=False)

    def __post_init__(self) -> None:
        order = b"" if self.order is None else self.order.tobytes()
        content = repr(self.pixels.shape).encode() + self.pixels.tobytes() + order
        if self.weights is not None:
            content += self.weights.tobytes()
        object.__setattr__(self, "digest", hashlib.sha256(content).digest())

    def keys(self) -> np.ndarray:
        """Returns numbers i64 [tokens] that stand for the image and the place in it.

        Below 0, outside the range of tokens.

        Each has 63 bits of a hash with a secret of this process, so nobody can look for two pictures with the same.
        """
        count = self.stop - self.start
        bits = hashlib.shake_256(_SECRET + self.digest).digest(8 * count)
        return np.frombuffer(bits, np.int64) | _SIGN


def image_places(order: np.ndarray) -> np.ndarray:
    """Returns bool [tokens]: whether a token of an ``order``, as of ``PromptPicture``, is of the picture."""
    return order.reshape(len(order), -1)[:, 0] >= 0


def ordered_rows(rows: np.ndarray, order: np.ndarray, weights: np.ndarray | None) -> np.ndarray:
    """Returns the embeddings f32 [tokens, D] of a picture's tokens; those of tokens of text are not read.

    Args:
        rows: f32 [rows, D], embeddings of all tiles.
        order: as of ``PromptPicture``.
        weights: as of ``PromptPicture``.

    >>> rows = np.array([[0.0, 4.0], [8.0, 0.0]], np.float32)
    >>> ordered_rows(rows, np.array([[0, 1], [1, 1]]), np.array([[0.25, 0.75], [1, 0]], np.float32)).tolist()
    [[6.0, 1.0], [8.0, 0.0]]
    """
    chosen = rows[np.maximum(order, 0)]
    return chosen if weights is None else (chosen * weights[..., None]).sum(1, dtype=np.float32)


def check_pictures(pictures: Sequence[PromptPicture], prompt: Sequence[int], image_token: int | None) -> None:
    """Checks that images are in order in a prompt, exactly at the places of its image tokens.

    Raises:
        InputError: they do not, or the model takes none.
    """
    if not pictures:
        return
    if image_token is None:
        raise InputError("pictures: the model takes none: leave them out, or ask one that does")
    end, seen = 0, np.zeros(len(prompt), np.bool_)
    for picture in pictures:
        if not end <= picture.start < picture.stop <= len(prompt):
            raise InputError(
                f"pictures: one has the positions {picture.start} to {picture.stop}; expected them within {end} to "
                f"{len(prompt)}, behind the one before"
            )
        end = picture.stop
        seen[picture.start : end] = True if picture.order is None else image_places(picture.order)
    wrong = np.flatnonzero((np.asarray(prompt) == image_token) != seen)
    if len(wrong):
        at, place = wrong[0], "in" if seen[wrong[0]] else "outside of"
        raise InputError(
            f"pictures: token {prompt[at]} at position {at} is {place} a picture; expected the image token "
            f"{image_token} in pictures, and nowhere else"
        )


def content_keys(tokens: np.ndarray, pictures: Sequence[PromptPicture]) -> np.ndarray:
    """Returns tokens i64 [n] with image tokens replaced by keys of the images."""
    keys = tokens.copy()
    for picture in pictures:
        keys[picture.start : picture.stop] = picture.keys()
    return keys


def whole_size(start: int, size: int, pictures: Sequence[PromptPicture]) -> int:
    """Returns the size of a piece that ends in no picture whose tokens run in one call.

    A piece that would is cut before the picture, and one that begins in the picture, or with it, goes on to its end.

    >>> picture = PromptPicture(pixels=np.zeros((3, 2, 2), np.float32), start=6, stop=10, whole=True)
    >>> [whole_size(start, 4, [picture]) for start in (0, 3, 6, 8, 10)]
    [4, 3, 4, 4, 4]
    """
    stop = start + size
    for picture in pictures:
        if picture.whole and picture.start < stop < picture.stop:
            return picture.start - start if start < picture.start else picture.stop - start
    return size


class PictureEncoder:
    """Embeddings of pictures by salt; those that were used last are kept, under a budget of bytes."""

    def __init__(self, model: GuardedModel, budget: int) -> None:
        """Begins without any."""
        self._model: Final = model
        self._budget: Final = budget
        self._kept: Final[OrderedDict[tuple[str, bytes], np.ndarray]] = OrderedDict()
        self._nbytes = 0

    def known(self, picture: PromptPicture, salt: str | None) -> np.ndarray | None:
        """Returns the embeddings f32 [tokens, D] of a picture; None if they are not kept for the salt."""
        if salt is None:
            return None
        embeddings = self._kept.get((salt, picture.digest))
        if embeddings is not None:
            self._kept.move_to_end((salt, picture.digest))
        return embeddings

    def encode(self, picture: PromptPicture, salt: str | None) -> np.ndarray:
        """Computes the embeddings f32 [tokens, D] of a picture, and keeps them for the salt if it is not None."""
        if picture.order is None:
            embeddings = self._model.encode_image(picture.pixels)
        else:
            rows = np.concatenate([self._model.encode_image(tile) for tile in picture.pixels])
            embeddings = ordered_rows(rows, picture.order, picture.weights)
        if salt is None:
            return embeddings
        self._kept[salt, picture.digest] = embeddings
        self._nbytes += embeddings.nbytes
        while self._nbytes > self._budget:
            _, oldest = self._kept.popitem(last=False)
            self._nbytes -= oldest.nbytes
        return embeddings


class PromptSight:
    """Embeddings of the pictures of one prompt, as far as they are known."""

    def __init__(self, pictures: Sequence[PromptPicture], salt: str | None) -> None:
        """Knows nothing yet; ``salt`` is that of the request."""
        self._salt: Final = salt
        self._pictures: Final = tuple(pictures)
        self._embeddings: Final[dict[int, np.ndarray]] = {}

    def missing(self, start: int, stop: int, encoder: PictureEncoder) -> PromptPicture | None:
        """Returns the first image without embeddings among the positions ``start`` to ``stop``."""
        for picture in self._within(start, stop):
            if picture.start not in self._embeddings:
                known = encoder.known(picture, self._salt)
                if known is None:
                    return picture
                self.add(picture, known)
        return None

    def add(self, picture: PromptPicture, embeddings: np.ndarray) -> None:
        """Notes a picture's embeddings f32 [tokens, D]."""
        self._embeddings[picture.start] = embeddings

    def rows(self, start: int, stop: int) -> np.ndarray | None:
        """Returns the embeddings f32 [stop - start, D] of the positions, 0 of texts; None if all is text."""
        pictures = self._within(start, stop)
        if not pictures:
            return None
        rows = np.zeros((stop - start, self._embeddings[pictures[0].start].shape[1]), np.float32)
        for picture in pictures:
            first, last = max(start, picture.start), min(stop, picture.stop)
            rows[first - start : last - start] = self._embeddings[picture.start][
                first - picture.start : last - picture.start
            ]
        return rows

    def forget(self) -> None:
        """Lets go of all embeddings."""
        self._embeddings.clear()

    def _within(self, start: int, stop: int) -> list[PromptPicture]:
        return [picture for picture in self._pictures if picture.start < stop and picture.stop > start]
