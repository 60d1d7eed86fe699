"""Encoder-decoders of texts, which answer in one call at a time."""

import asyncio
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from tapeline.running import GeneratedToken, Generation
from tapeline.server._errors import RequestError
from tapeline.server._gone import ClientGoneError
from tapeline.server._texts_model import TextsModel


class TextStream(Iterator[GeneratedToken], Protocol):
    """``TokenStream``, as far as the server needs it.

    Attributes:
        prompt_tokens: number of tokens of the prompt.
        answers: the answer so far.
    """

    prompt_tokens: int
    answers: list[Generation]


class TextAnswering(Protocol):
    """``LoadedModel`` of an encoder-decoder of texts, as far as the server needs it."""

    @property
    def vocabulary(self) -> int:
        """Number of tokens that prompts may have."""
        ...

    def stream(
        self,
        prompt: str | None = None,
        *,
        token_ids: Sequence[int] | None = None,
        check: Callable[[], object] | None = None,
        **options: Any,
    ) -> TextStream:
        """Answers a prompt; ``check`` is called before each step of the model."""
        ...

    def close(self) -> None:
        """Closes the session."""
        ...


@dataclass(frozen=True, slots=True)
class TextAnswer:
    """Answer to one prompt.

    Attributes:
        text: its text.
        ended: ``eos``, ``stop`` or ``length``.
        prompt_tokens: number of tokens of the prompt.
        tokens: number of new tokens, an end token among them.
    """

    text: str
    ended: str | None
    prompt_tokens: int
    tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TextToTextModel(TextsModel):
    """Encoder-decoder of texts (T5, BART, Marian, NLLB), for several threads: one call runs at a time.

    Attributes:
        reader: makes the answers.
    """

    reader: TextAnswering

    async def answer(
        self, prompts: Sequence[str | Sequence[int]], options: Mapping[str, Any], seconds: float
    ) -> list[TextAnswer]:
        """Answers prompts one after the other. A call that is cancelled ends before the next step of the model.

        Args:
            prompts: text or tokens of each.
            options: fields of ``GenerateOptions``.
            seconds: longest time of all, with the time that other calls take before.

        Raises:
            InputError: a prompt does not fit, or options contradict each other.
            BusyError: too many calls wait.
            RequestError: the answers take too long.
        """
        gone = threading.Event()

        def check() -> None:
            self._turns.activity.beat()
            if gone.is_set():
                raise ClientGoneError("nobody waits for the answer any more")

        def answers() -> list[TextAnswer]:
            return [self._answer(prompt, options, check) for prompt in prompts]

        try:
            async with asyncio.timeout(seconds), self._turns.turn():
                return await asyncio.to_thread(self._turns.take, answers)
        except TimeoutError as error:
            raise RequestError(
                f"the answer took longer than {seconds:g} s: send shorter texts, or ask for fewer tokens (max_tokens)",
                status=504,
            ) from error
        finally:
            gone.set()

    def _answer(
        self, prompt: str | Sequence[int], options: Mapping[str, Any], check: Callable[[], object]
    ) -> TextAnswer:
        check()
        if isinstance(prompt, str):
            stream = self.reader.stream(prompt, check=check, **options)
        else:
            stream = self.reader.stream(token_ids=prompt, check=check, **options)
        tokens = sum(1 for _ in stream)
        answer = stream.answers[0]
        return TextAnswer(answer.text, answer.ended, stream.prompt_tokens, tokens)

    def close(self) -> None:
        """Frees the model."""
        self._turns.last(self.reader.close)
