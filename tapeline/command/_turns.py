"""Turns of a conversation on the terminal: lines of the user, commands, answers that Ctrl-C stops."""

import contextlib
import signal
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import Final

from tapeline.cli import say, user_path
from tapeline.running import Conversation, GeneratedToken, GenerateKeywords, LoadedModel, TokenStream

_IMAGE: Final = "/image "
_HELP: Final = (
    "one turn per line; /reset forgets what was said, /image FILE puts a picture before the next turn, /quit or Ctrl-D "
    "ends, Ctrl-C stops an answer"
)


class Turns:
    """Streams of answers, one per line of stdin.

    Args:
        model: model that answers.
        system: message that the model is given before everything else.
        prompts: turns of the user; None takes lines of stdin.
        options: options of the generation.
        images: files of pictures of the first turn.
    """

    def __init__(
        self,
        model: LoadedModel,
        system: str | None,
        prompts: Sequence[str] | None,
        options: GenerateKeywords,
        images: Sequence[Path] = (),
    ) -> None:
        self._model: Final = model
        self._system: Final = system
        self._prompts: Final = prompts
        self._options: Final = options
        self._images: list[Path] = list(images)
        self._conversation: Conversation = model.chat(system)

    def __iter__(self) -> Iterator[TokenStream]:
        """Yields the answer to each turn, and carries out commands between them."""
        if self._prompts is not None:
            for prompt in self._prompts:
                yield self._answer(prompt)
            return
        if sys.stdin.isatty():
            say(_HELP)
        for line in _lines():
            if line == "/quit":
                return
            if line == "/reset":
                self._conversation = self._model.chat(self._system)
                say("(forgotten)")
            elif line.startswith(_IMAGE):
                self._images.append(user_path(line.removeprefix(_IMAGE).strip()))
            elif line == "/help":
                say(_HELP)
            else:
                yield self._answer(line)

    def _answer(self, text: str) -> TokenStream:
        images, self._images = self._images, []
        return self._conversation.stream(text, images=images, **self._options)


def _lines() -> Iterator[str]:
    """Yields the lines of stdin that hold anything, without spaces around them; on a terminal Ctrl-C drops a line."""
    terminal = sys.stdin.isatty()
    while True:
        if terminal:
            sys.stderr.write("> ")
            sys.stderr.flush()
        try:
            line = sys.stdin.readline()
        except KeyboardInterrupt:
            if not terminal:
                raise
            say("")
            continue
        if not line:
            return
        if line.strip():
            yield line.strip()


@contextlib.contextmanager
def stoppable(stream: TokenStream) -> Iterator[Iterator[GeneratedToken]]:
    """Yields a stream that ends where Ctrl-C is pressed; pressed once more, it interrupts the program.

    A step of the model is never cut off, so the caches hold what was said.
    """
    pressed = False

    def stop(number: int, frame: FrameType | None) -> None:
        nonlocal pressed
        if pressed:
            signal.default_int_handler(number, frame)
        pressed = True

    def tokens() -> Iterator[GeneratedToken]:
        for token in stream:
            yield token
            if pressed:
                return

    before = signal.signal(signal.SIGINT, stop)
    try:
        yield tokens()
    finally:
        signal.signal(signal.SIGINT, before)
