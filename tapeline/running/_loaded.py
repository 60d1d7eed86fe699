"""A bundle on a device, as one object that generates, chats, embeds, transcribes and scores."""

import contextlib
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from types import TracebackType
from typing import Final, Self, Unpack

import numpy as np

import tapeline.text
from compile_hlo.calls import Counters
from lang_core import InputError
from tapeline.bundle import Bundle
from tapeline.engines import Session
from tapeline.running._arrays import ordered_inputs
from tapeline.running._conversation import Conversation
from tapeline.running._eyes import Eyes
from tapeline.running._generation import (
    GeneratedToken,
    GenerateKeywords,
    GenerateOptions,
    Generation,
    TokenStream,
    generate_options,
)
from tapeline.running._generator import Generator
from tapeline.running._pictures import ImageSource
from tapeline.running._prompt_pictures import SeenPicture
from tapeline.running._scores import Scores, cached_logits, forward_logits, scores
from tapeline.running._senses import Senses
from tapeline.text import Tokenizer, check_ids, find_tokenizer
from transformer_core.generation import load_eos_ids


class LoadedModel(Senses):
    """A bundle on a device; a context manager that closes the session at its end. ``load`` makes it.

    One stream of tokens runs at a time: a second one ends the first. Not for several threads at once.

    Attributes:
        bundle: the bundle.
        device: name of the device, or of the kind of devices.

    Example::

        with tapeline.load("tapeline-demo") as model:
            answer = model.generate("It was the best of times,", max_new_tokens=60)
            print(answer.text)
            for token in model.stream("It was", temperature=0.8, seed=7):
                print(token.text, end="", flush=True)
    """

    def __init__(
        self,
        bundle: Bundle,
        session: Session,
        stack: contextlib.ExitStack,
        generator: Generator,
    ) -> None:
        """Takes over what ``load`` has opened; ``stack`` closes it."""
        super().__init__(bundle, session)
        self.device: Final = session.device
        self._stack: Final = stack
        self._generator: Final = generator

    @cached_property
    def tokenizer(self) -> Tokenizer | None:
        """Tokenizer of the bundle; None where it has none."""
        return find_tokenizer(self.bundle.path)

    @property
    def vocabulary(self) -> int:
        """Size of the vocabulary, V, of a bundle that generates."""
        return self._generator.model().vocabulary

    @property
    def counters(self) -> Counters:
        """Calls and bytes copied so far, of all entry points."""
        return self._session.counters

    @property
    def target(self) -> str:
        """Name of what the bundle's module is compiled for there."""
        return self._session.target

    @property
    def token_bytes(self) -> int:
        """Bytes of token ids and their positions that were moved so far."""
        return self._generator.token_bytes

    def generate(
        self,
        prompt: str | None = None,
        *,
        token_ids: Sequence[int] | None = None,
        images: Sequence[ImageSource] = (),
        on_token: Callable[[GeneratedToken], object] | None = None,
        **options: Unpack[GenerateKeywords],
    ) -> Generation:
        """Continues a prompt and returns the whole answer.

        Args:
            prompt: text; or else ``token_ids``. It has ``<image>`` where a picture belongs.
            token_ids: the prompt as tokens, with as many image tokens as the pictures have.
            images: pictures: paths of image files, the bytes of such, or pixels u8 [height, width, 3].
            on_token: receives each new token as it comes.
            **options: fields of ``GenerateOptions``, such as ``max_new_tokens`` and ``temperature``.

        Raises:
            InputError: prompt or options are wrong, or do not fit into the bundle's caches.
        """
        return _finished(self.stream(prompt, token_ids=token_ids, images=images, **options), on_token)[0]

    def generate_batch(
        self,
        prompts: Sequence[str] | None = None,
        *,
        token_ids: Sequence[Sequence[int]] | None = None,
        on_token: Callable[[GeneratedToken], object] | None = None,
        **options: Unpack[GenerateKeywords],
    ) -> list[Generation]:
        """Continues several prompts at once, with a bundle exported with ``positions="per_row"``.

        Args:
            prompts: texts; or else ``token_ids``.
            token_ids: the prompts as tokens.
            on_token: receives each new token as it comes.
            **options: fields of ``GenerateOptions``.

        Raises:
            InputError: as for ``generate``; or the bundle takes fewer prompts at once.
        """
        return _finished(self.stream_batch(prompts, token_ids=token_ids, **options), on_token)

    def stream(
        self,
        prompt: str | None = None,
        *,
        token_ids: Sequence[int] | None = None,
        images: Sequence[ImageSource] = (),
        **options: Unpack[GenerateKeywords],
    ) -> TokenStream:
        """Continues a prompt and returns an iterator of tokens; arguments and ``InputError`` as for ``generate``."""
        if images:
            return self._stream_seeing(prompt, token_ids, images, generate_options(options))
        return self.stream_batch(
            None if prompt is None else [prompt], token_ids=None if token_ids is None else [token_ids], **options
        )

    def _stream_seeing(
        self,
        prompt: str | None,
        token_ids: Sequence[int] | None,
        images: Sequence[ImageSource],
        options: GenerateOptions,
    ) -> TokenStream:
        if (prompt is None) == (token_ids is None):
            raise InputError("give either `prompt` or `token_ids`")
        pictures = self._eyes.see(images)
        text = None if prompt is None else self._eyes.written(prompt, pictures)
        ids = self._checked(text, token_ids, self.vocabulary)
        placed = self._eyes.placed(ids, pictures)
        return self._generator.stream([ids], options, load_eos_ids(self.bundle.path), self.tokenizer, placed)

    def stream_batch(
        self,
        prompts: Sequence[str] | None = None,
        *,
        token_ids: Sequence[Sequence[int]] | None = None,
        **options: Unpack[GenerateKeywords],
    ) -> TokenStream:
        """Continues several prompts and returns an iterator of tokens; as for ``generate_batch``.

        Raises:
            InputError: both or neither of ``prompt`` and ``token_ids`` are given.
        """
        chosen = generate_options(options)
        ends = load_eos_ids(self.bundle.path)
        if (prompts is None) == (token_ids is None):
            raise InputError("give either `prompt` or `token_ids`")
        if token_ids is None:
            return self._generator.stream([self.encode(text) for text in prompts or ()], chosen, ends, self.tokenizer)
        for ids in token_ids:
            check_ids(ids, self.vocabulary, "`token_ids`")
        return self._generator.stream(token_ids, chosen, ends, self.tokenizer)

    def chat(self, system: str | None = None) -> Conversation:
        """Begins a conversation in the model's own chat template.

        Args:
            system: instruction before everything else; None for none.

        Raises:
            InputError: the bundle has no tokenizer or no chat template, or one that is damaged.

        Example::

            conversation = model.chat(system="Answer briefly.")
            print(conversation.ask("Why is the sky blue?").text)
            print(conversation.ask("And at night?").text)
        """
        chat = tapeline.text.Chat.of(self.bundle.path, self.tokenizer, system)
        ends = load_eos_ids(self.bundle.path) | chat.end_ids()

        seen: list[SeenPicture] = []

        def stream(text: str, images: Sequence[ImageSource], options: GenerateOptions) -> TokenStream:
            if not images and not seen:
                return self._generator.stream([chat.ask(text, self.vocabulary)], options, ends, self.tokenizer)
            eyes = self._eyes
            eyes.check_text(text)
            pictures = [*seen, *eyes.see(images)]
            ids = chat.ask(
                text, self.vocabulary, pictures=len(images), written=lambda rendered: eyes.written(rendered, pictures)
            )
            answer = self._generator.stream([ids], options, ends, self.tokenizer, eyes.placed(ids, pictures))
            seen[:] = pictures
            return answer

        return Conversation(chat, stream)

    def score(self, text: str | None = None, *, token_ids: Sequence[int] | None = None) -> Scores:
        """Returns the log-probability of each token of a text, given those before it.

        Args:
            text: the text; or else ``token_ids``.
            token_ids: the text as tokens, two or more.

        Raises:
            InputError: the text has fewer than two tokens or more than fit, or the bundle gives no logits.
        """
        if (text is None) == (token_ids is None):
            raise InputError("give either `text` or `token_ids`")
        names = [entry_point.name for entry_point in self.bundle.config.entry_points]
        if "prefill" not in names and "forward" in names:
            vocabulary = int(self.bundle.config.model.get("vocabulary", 0))
            ids = self._checked(text, token_ids, vocabulary)
            return scores(ids, forward_logits(self.bundle, self._session, ids))
        model = self._generator.emptied()
        ids = self._checked(text, token_ids, model.vocabulary)
        return scores(ids, cached_logits(model, ids))

    def run(self, entry_point: str, inputs: Mapping[str, np.ndarray | int]) -> dict[str, np.ndarray]:
        """Runs one entry point on arrays and returns its results by name, of the shapes and dtypes of its specs.

        Args:
            entry_point: name, such as ``forward``.
            inputs: arguments by name, of the shapes and dtypes of its specs.

        Raises:
            InputError: the entry point does not exist, or an argument is missing, unknown or does not fit.
        """
        point = self.bundle.entry_point(entry_point)
        tensors = self._session.function(point.name)(*ordered_inputs(point, inputs))
        names = [result.name for result in point.results]
        return {name: tensor.numpy() for name, tensor in zip(names, tensors, strict=True)}

    def encode(self, text: str) -> list[int]:
        """Returns the tokens of a text.

        Raises:
            InputError: the bundle has no tokenizer, or the text has no token.
        """
        return self._encode(text, self.vocabulary)

    def close(self) -> None:
        """Closes the session; what is called afterwards fails."""
        self._stack.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.__exit__(kind, error, trace)

    @cached_property
    def _eyes(self) -> Eyes:
        return Eyes(self.bundle, self._session, self.tokenizer)

    def _encode(self, text: str, vocabulary: int) -> list[int]:
        if self.tokenizer is None:
            raise InputError(f"`prompt`: {self.bundle.path} has no tokenizer: give `token_ids`")
        return self.tokenizer.encode(text, vocabulary)

    def _checked(self, text: str | None, token_ids: Sequence[int] | None, vocabulary: int) -> list[int]:
        if token_ids is None:
            return self._encode(text or "", vocabulary)
        check_ids(token_ids, vocabulary, "`token_ids`")
        return list(token_ids)


def _finished(stream: TokenStream, on_token: Callable[[GeneratedToken], object] | None) -> list[Generation]:
    for token in stream:
        if on_token is not None:
            on_token(token)
    return stream.answers
