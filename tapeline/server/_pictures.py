"""Pictures of conversations: data URIs in, tiles in a prompt out."""

import base64
import binascii
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Final, TypeVar

import numpy as np

from generation.engine import PromptPicture
from lang_core import InputError
from tapeline.media.images import ImageLimits, Tiles, read_image
from tapeline.running import PicturePrompts
from tapeline.server._errors import RequestError
from tapeline.server._messages import ChatMessage, ImagePart
from tapeline.server._options import ServerOptions
from tapeline.server._values import joined

_DATA: Final = "data:"
_BASE64: Final = ";base64"
_FORM: Final = "data:image/png;base64,.."
_RETRY_SECONDS: Final = 1.0
T = TypeVar("T")


class PixelBudget:
    """Bytes of pixels that all requests together may hold; they are given back when the arrays are gone.

    Args:
        options: limits of pictures.
    """

    def __init__(self, options: ServerOptions) -> None:
        self.options: Final = options
        self._lock: Final = threading.Lock()
        self.nbytes = 0

    def hold(self, pixels: np.ndarray) -> None:
        """Counts an array for as long as it lives.

        Raises:
            RequestError: memory is insufficient for it now.
        """
        with self._lock:
            if self.nbytes and self.nbytes + pixels.nbytes > self.options.max_pixel_bytes:
                raise RequestError(
                    "the server holds as many pictures as it may: ask again", status=429, retry_after=_RETRY_SECONDS
                )
            self.nbytes += pixels.nbytes
        weakref.finalize(pixels, self._release, pixels.nbytes)

    def _release(self, nbytes: int) -> None:
        with self._lock:
            self.nbytes -= nbytes


class PictureReader:
    """Pictures of a model's conversations.

    Args:
        prompts: the model's tiles and the text for them.
    """

    def __init__(self, prompts: PicturePrompts) -> None:
        self._prompts: Final = prompts

    def read(self, messages: Sequence[ChatMessage], budget: PixelBudget) -> list[Tiles]:
        """Returns the pictures of a conversation, in order.

        Raises:
            RequestError: there are too many, one is not a data URI, is damaged or exceeds a limit, or a text has the
                image placeholder.
        """
        for text, where in _texts(messages):
            _named(where, lambda text=text: self._prompts.check_text(text))
        places, options = list(_pictures(messages)), budget.options
        if len(places) > options.max_images:
            where = places[options.max_images][1]
            raise RequestError(
                f"{where}: expected at most {options.max_images} pictures in a request; found {len(places)}",
                param=where,
            )
        limits = ImageLimits(max_bytes=options.max_image_bytes, max_pixels=options.max_image_pixels)
        return [self._tiles(part.image_url.url, where, limits, budget) for part, where in places]

    def written(self, text: str, tiles: Sequence[Tiles]) -> str:
        """Returns a rendered conversation with the text of its pictures.

        Raises:
            InputError: the template has more or fewer places for pictures.
        """
        return self._prompts.written(text, tiles)

    def placed(self, token_ids: Sequence[int], tiles: Sequence[Tiles]) -> list[PromptPicture]:
        """Returns the tiles of pictures in the places of their tokens.

        Raises:
            InputError: the prompt has more or fewer image tokens.
        """
        return self._prompts.placed(token_ids, tiles)

    def _tiles(self, url: str, where: str, limits: ImageLimits, budget: PixelBudget) -> Tiles:
        data = picture_bytes(url, where, limits.max_bytes)
        tiles = _named(where, lambda: self._prompts.tiles(read_image(data, limits, name="the picture"), limits))
        budget.hold(tiles.pixels)
        return tiles


def refuse_pictures(messages: Sequence[ChatMessage], name: str) -> None:
    """Refuses the pictures of a conversation with a model that takes none.

    Raises:
        RequestError: there are some.
    """
    for _, where in _pictures(messages):
        raise RequestError(
            f"{where}: model {name!r} takes no pictures: send text only, or name a model that sees",
            param=where,
            code="unsupported_parameter",
        )


def picture_bytes(url: str, where: str, most: int) -> bytes:
    """Returns the bytes of a data URI.

    Args:
        url: the URI.
        where: path of the field, for messages.
        most: largest number of bytes.

    Raises:
        RequestError: it is not a base64 data URI, is damaged, or too large.
    """
    if url[: len(_DATA)].lower() != _DATA:
        scheme = url.partition(":")[0][:20] if ":" in url[:30] else url[:20]
        raise RequestError(
            f"{where}: expected a data URI ({_FORM}); found {scheme!r}: nothing that a request names is fetched",
            param=where,
        )
    head, comma, text = url[len(_DATA) :].partition(",")
    if not comma or not head.lower().endswith(_BASE64):
        raise RequestError(f"{where}: expected a data URI in base64 ({_FORM}); found {url[:40]!r}", param=where)
    if len(text) // 4 * 3 > most + 2:
        raise RequestError(f"{where}: expected a picture of at most {most} bytes: make it smaller", param=where)
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise RequestError(f"{where}: this is no base64 ({error}): encode the picture again", param=where) from error


def _texts(messages: Sequence[ChatMessage]) -> Iterator[tuple[str, str]]:
    """Yields every text of a conversation, with its path."""
    for index, message in enumerate(messages):
        yield message.text, joined(joined("messages", index), "content")


def _pictures(messages: Sequence[ChatMessage]) -> Iterator[tuple[ImagePart, str]]:
    """Yields every picture of a conversation, with the path of its address."""
    for index, message in enumerate(messages):
        for place, part in enumerate(message.parts):
            if isinstance(part, ImagePart):
                yield part, f"messages[{index}].content[{place}].image_url.url"


def _named(where: str, call: Callable[[], T]) -> T:
    """Returns the result of a call; its errors name the field."""
    try:
        return call()
    except InputError as error:
        raise RequestError(f"{where}: {error}", param=where) from error
