"""Turns of a conversation on the terminal: lines of the user, commands, answers that Ctrl-C stops."""

import contextlib
import re
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import Final

from lang_core import InputError, near_names
from tapeline.cli import say, say_error, user_path
from tapeline.interrupts import first_deferred
from tapeline.running import Conversation, GeneratedToken, GenerateKeywords, LoadedModel, TokenStream

_COMMANDS: Final = ("/reset", "/image", "/help", "/quit")
_COMMAND: Final = re.compile(r"/[a-z]+")
_HELP: Final = (
    "one message per line; /reset clears the conversation, {image}/quit or Ctrl-D ends, Ctrl-C stops an answer"
)
_NOT_TAKEN: Final = "(discarded; the conversation stays, and /reset clears it)"
_IMAGE_HELP: Final = "/image FILE puts a picture before the next turn, "


class ChatLoop:
    """Streams of answers, one per line of stdin.

    On a terminal a turn or a command that is refused is told, and the conversation goes on; elsewhere it ends the
    program.

    Args:
        model: model that answers.
        system: message that the model is given before everything else.
        prompts: turns of the user; None takes lines of stdin.
        options: options of the generation.
        images: files of pictures of the first turn.
        translate: writes the options that an error names as flags.
    """

    def __init__(
        self,
        model: LoadedModel,
        system: str | None,
        prompts: Sequence[str] | None,
        options: GenerateKeywords,
        images: Sequence[Path] = (),
        translate: Callable[[str], str] = str,
    ) -> None:
        self._model: Final = model
        self._system: Final = system
        self._prompts: Final = prompts
        self._options: Final = options
        self._images: list[Path] = list(images)
        self._translate: Final = translate
        self._conversation: Conversation = model.chat(system)

    def __iter__(self) -> Iterator[TokenStream]:
        """Yields the answer to each turn, and carries out commands between them."""
        if self._prompts is not None:
            for prompt in self._prompts:
                yield self._answer(prompt)
            return
        terminal = sys.stdin.isatty()
        if terminal:
            say(self._help())
        for line in _lines():
            if line == "/quit":
                return
            try:
                answer = self._turn(line)
            except InputError as error:
                if not terminal:
                    raise
                say_error(f"{self._translate(str(error))}\n{_NOT_TAKEN}")
                continue
            if answer is not None:
                yield answer

    def _turn(self, line: str) -> TokenStream | None:
        """Returns the answer to a turn; None of a command, which is carried out."""
        word, _, rest = line.partition(" ")
        if not _COMMAND.fullmatch(word):
            return self._answer(line)
        if word == "/image" and rest:
            self._add_image(rest.strip())
        elif line == "/reset":
            self._conversation, self._images = self._model.chat(self._system), []
            say("(forgotten)")
        elif line == "/help":
            say(self._help())
        else:
            raise InputError(f"{line}: unknown command{near_names(word, _COMMANDS)}: {self._help()}")
        return None

    def _help(self) -> str:
        return _HELP.format(image=_IMAGE_HELP if self._model.sees else "")

    def _add_image(self, name: str) -> None:
        if not self._model.sees:
            raise InputError(f"/image {name}: {self._model.bundle.path} is of a model that takes no pictures")
        path = user_path(name)
        if not path.is_file():
            raise InputError(f"/image {name}: there is no file {path}")
        self._images.append(path)

    def _answer(self, text: str) -> TokenStream:
        images, self._images = self._images, []
        return self._conversation.stream(text, images=images, **self._options)


def _lines() -> Iterator[str]:
    """Yields the lines of stdin that hold anything, without spaces around them."""
    terminal = sys.stdin.isatty()
    while True:
        if terminal:
            sys.stderr.write("> ")
            sys.stderr.flush()
        line = sys.stdin.readline()
        if not line:
            return
        if line.strip():
            yield line.strip()


@contextlib.contextmanager
def stoppable(stream: TokenStream) -> Iterator[Iterator[GeneratedToken]]:
    """Yields a stream that ends when Ctrl-C is pressed; pressed again, it interrupts the program.

    A step of the model is never cut off, so the caches match the text.
    """
    pressed = False

    def stop(number: int, frame: FrameType | None) -> None:
        nonlocal pressed
        if pressed:
            (before if callable(before) else signal.default_int_handler)(number, frame)
        pressed = True

    def tokens() -> Iterator[GeneratedToken]:
        for token in stream:
            yield token
            if pressed:
                return

    before = signal.signal(signal.SIGINT, stop)
    try:
        with first_deferred():
            yield tokens()
    finally:
        signal.signal(signal.SIGINT, before)
