"""A conversation with a model on a device."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, Unpack

from lang_core import InputError, near_keywords
from tapeline.running._generation import (
    GeneratedToken,
    GenerateKeywords,
    GenerateOptions,
    Generation,
    TokenStream,
    generate_options,
)
from tapeline.running._given_prompts import check_text
from tapeline.running._pictures import ImageSource

if TYPE_CHECKING:
    from tapeline.text import Chat


@near_keywords
class Conversation:
    """Turns of a user and answers of a model; ``LoadedModel.chat`` makes it.

    Only the new tokens of a turn run through the model, if the bundle's caches allow it. An answer ends at its end
    token: ``max_new_tokens`` is None by default.
    """

    def __init__(
        self, chat: "Chat", stream: Callable[[str, Sequence[ImageSource], GenerateOptions], TokenStream]
    ) -> None:
        """Begins without turns.

        Args:
            chat: messages so far, rendered by the model's template.
            stream: answers a user's turn, of text and pictures.
        """
        self._chat: Final = chat
        self._stream: Final = stream
        self._last: TokenStream | None = None

    def ask(
        self,
        text: str,
        *,
        images: Sequence[ImageSource] = (),
        on_token: Callable[[GeneratedToken], object] | None = None,
        **options: Unpack[GenerateKeywords],
    ) -> Generation:
        """Answers a user's turn.

        Args:
            text: the turn.
            images: pictures before the text: paths of image files, the bytes of such, or pixels u8 [height, width, 3].
            on_token: receives each new token as it comes.
            **options: fields of ``GenerateOptions``.

        Raises:
            InputError: the template refuses the messages, or the conversation does not fit into the caches. The turn is
                discarded then; earlier turns stay.
        """
        stream = self.stream(text, images=images, **options)
        for token in stream:
            if on_token is not None:
                on_token(token)
        return stream.answers[0]

    def stream(
        self, text: str, *, images: Sequence[ImageSource] = (), **options: Unpack[GenerateKeywords]
    ) -> TokenStream:
        """Answers a user's turn and returns an iterator of tokens; arguments and errors as for ``ask``."""
        chosen = generate_options({"max_new_tokens": None, **options})
        check_text("text", text)
        if self._last is not None:
            self._chat.answered(self._last.answers[0].text)
            self._last = None
        said = self._chat.messages
        try:
            self._last = self._stream(text, images, chosen)
        except InputError:
            self._chat.messages = said
            raise
        return self._last
