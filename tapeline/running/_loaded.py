"""A bundle on a device, as one object that generates, chats, embeds, transcribes and scores."""

import contextlib
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from types import TracebackType
from typing import Final, Self, Unpack, overload

import numpy as np

import tapeline.text
from generation import load_default_sampling, load_eos_ids
from lang_core import InputError, near_keywords
from runtime import Counters, Session
from tapeline.bundle import Bundle
from tapeline.cli import Progress, ProgressEvent, no_progress
from tapeline.media.images import Tiles
from tapeline.runners import ordered_inputs
from tapeline.running._conversation import Conversation
from tapeline.running._generation import (
    GeneratedToken,
    GenerateKeywords,
    GenerateOptions,
    Generation,
    SamplingKeywords,
    TokenStream,
    generate_options,
)
from tapeline.running._given_prompts import GivenPrompts, check_either, check_text
from tapeline.running._picture_prompts import PicturePrompts
from tapeline.running._pictures import ImageSource
from tapeline.running._row_generator import RowGenerator
from tapeline.running._scores import Scores, forward_logits, scores
from tapeline.running._senses import Senses
from tapeline.running._text_to_text import TextToText
from tapeline.text import Tokenizer, check_ids, find_tokenizer

_COMPARING: Final = "comparing the weights with their hash, once for each copy of a bundle ..."


@near_keywords
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
        generator: RowGenerator,
        progress: Progress = no_progress,
        translator: TextToText | None = None,
    ) -> None:
        """Takes over the session of ``load``; ``stack`` closes it, ``translator`` answers texts of encoder-decoders."""
        super().__init__(bundle, session)
        self.device: Final = session.device
        self._stack: Final = stack
        self._generator: Final = generator
        self._progress: Final = progress
        self._translator: Final = translator

    @cached_property
    def tokenizer(self) -> Tokenizer | None:
        """Tokenizer of the bundle; None if it has none."""
        return find_tokenizer(self.bundle.path)

    @property
    def vocabulary(self) -> int:
        """Size of the vocabulary, V, of a bundle that generates; of an encoder-decoder that of its sources."""
        return self._generator.vocabulary if self._translator is None else self._translator.source_vocabulary

    @property
    def translates(self) -> bool:
        """True if prompts are texts that an encoder reads, and answers are texts of their own."""
        return self._translator is not None

    @property
    def counters(self) -> Counters:
        """Calls and bytes copied so far, of all entry points."""
        return self._session.counters

    @property
    def target(self) -> str:
        """Name of the target that the bundle's module is compiled for there."""
        return self._session.target

    @property
    def token_bytes(self) -> int:
        """Bytes of token ids and their positions that were moved so far."""
        return self._generator.token_bytes if self._translator is None else self._translator.token_bytes

    @property
    def default_sampling(self) -> SamplingKeywords:
        """Sampling that ``chat`` and ``serve`` use if their user chooses none, as options of ``generate``.

        Raises:
            ConfigError: the bundle's generation_config.json is damaged.
        """
        sampling = load_default_sampling(self.bundle.path)
        return {
            "temperature": sampling.temperature,
            "top_k": sampling.top_k,
            "top_p": sampling.top_p,
            "min_p": sampling.min_p,
            "repetition_penalty": sampling.repetition_penalty,
        }

    @overload
    def generate(
        self,
        prompt: str | None = None,
        *,
        token_ids: Sequence[int] | None = None,
        images: Sequence[ImageSource] = (),
        on_token: Callable[[GeneratedToken], object] | None = None,
        **options: Unpack[GenerateKeywords],
    ) -> Generation: ...

    @overload
    def generate(
        self,
        prompt: list[str] | tuple[str, ...],
        *,
        on_token: Callable[[GeneratedToken], object] | None = None,
        **options: Unpack[GenerateKeywords],
    ) -> list[Generation]: ...

    @overload
    def generate(
        self,
        *,
        token_ids: Sequence[Sequence[int]],
        on_token: Callable[[GeneratedToken], object] | None = None,
        **options: Unpack[GenerateKeywords],
    ) -> list[Generation]: ...

    def generate(
        self,
        prompt: str | Sequence[str] | None = None,
        *,
        token_ids: Sequence[int] | Sequence[Sequence[int]] | None = None,
        images: Sequence[ImageSource] = (),
        on_token: Callable[[GeneratedToken], object] | None = None,
        **options: Unpack[GenerateKeywords],
    ) -> Generation | list[Generation]:
        """Continues a prompt and returns the whole answer; the answers to a list of prompts.

        The likeliest token is taken, unless ``temperature`` is given: ``**model.default_sampling`` samples as ``chat``
        does. Several prompts are answered as each alone: at once by a bundle with slots, else in turn.

        Args:
            prompt: text, or a list of texts; or else ``token_ids``. ``<image>`` marks the place of an image.
            token_ids: the prompt as tokens, with as many image tokens as the pictures have; or a list of such prompts.
            images: pictures of one prompt: paths of image files, the bytes of such, or pixels u8 [height, width, 3].
            on_token: receives each new token as it comes.
            **options: fields of ``GenerateOptions``, such as ``max_new_tokens``, ``temperature`` and ``stop``.

        Raises:
            InputError: prompt or options are wrong, or do not fit into the bundle's caches.
        """
        given = GivenPrompts.of(prompt, token_ids)
        answers = _finished(self._stream(given, images, generate_options(options)), on_token)
        return answers if given.several else answers[0]

    def generate_batch(
        self,
        prompts: Sequence[str] | None = None,
        *,
        token_ids: Sequence[Sequence[int]] | None = None,
        on_token: Callable[[GeneratedToken], object] | None = None,
        **options: Unpack[GenerateKeywords],
    ) -> list[Generation]:
        """Continues several prompts: ``generate`` with a list, which must not be empty.

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
        prompt: str | Sequence[str] | None = None,
        *,
        token_ids: Sequence[int] | Sequence[Sequence[int]] | None = None,
        images: Sequence[ImageSource] = (),
        check: Callable[[], object] | None = None,
        **options: Unpack[GenerateKeywords],
    ) -> TokenStream:
        """Continues a prompt and returns an iterator of tokens; arguments and ``InputError`` as for ``generate``.

        Each token of several prompts has the number of its prompt as ``row``.

        Args:
            prompt: as for ``generate``.
            token_ids: as for ``generate``.
            images: as for ``generate``.
            check: is called before each step of an encoder-decoder of texts, also while beam search gives no tokens;
                its exceptions end the stream.
            **options: as for ``generate``.

        Raises:
            InputError: as for ``generate``; or ``check`` is given, and the model is no encoder-decoder of texts.
        """
        return self._stream(GivenPrompts.of(prompt, token_ids), images, generate_options(options), check)

    def _stream(
        self,
        prompts: GivenPrompts,
        images: Sequence[ImageSource],
        options: GenerateOptions,
        check: Callable[[], object] | None = None,
    ) -> TokenStream:
        if check is not None and self._translator is None:
            raise InputError(
                f"`check`: for encoder-decoders that take texts (T5, BART, Marian, NLLB, ...); {self.bundle.path} is a "
                f"{self.bundle.config.model.get('family')}: leave it out"
            )
        if not images:
            return self._stream_prompts(prompts, options, at_once=False, check=check)
        if prompts.several:
            raise InputError("`images` go with one prompt: call `generate` once for each")
        text = None if prompts.texts is None else prompts.texts[0]
        ids = None if prompts.token_ids is None else prompts.token_ids[0]
        return self._stream_seeing(text, ids, images, options)

    def _stream_seeing(
        self,
        prompt: str | None,
        token_ids: Sequence[int] | None,
        images: Sequence[ImageSource],
        options: GenerateOptions,
    ) -> TokenStream:
        pictures = self._pictures.see(images)
        text = None if prompt is None else self._pictures.written(prompt, pictures)
        ids = self._checked(text, token_ids, self.vocabulary)
        placed = self._pictures.placed(ids, pictures)
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
        given = GivenPrompts.at_once(prompts, token_ids)
        return self._stream_prompts(given, generate_options(options), at_once=True)

    def _stream_prompts(
        self,
        prompts: GivenPrompts,
        options: GenerateOptions,
        *,
        at_once: bool,
        check: Callable[[], object] | None = None,
    ) -> TokenStream:
        translator = self._translator
        if translator is not None:
            sources = prompts.token_ids
            if sources is None:
                sources = [translator.encode(text, options.source_language) for text in prompts.texts or ()]
            else:
                sources = [self._checked_ids(ids, self.vocabulary) for ids in sources]
            return translator.stream(sources, options, at_once=at_once, check=check)
        ends = load_eos_ids(self.bundle.path)
        if prompts.token_ids is None:
            token_ids = [self.encode(text) for text in prompts.texts or ()]
        else:
            token_ids = [self._checked_ids(ids, self.vocabulary) for ids in prompts.token_ids]
        return self._generator.stream(token_ids, options, ends, self.tokenizer, at_once=at_once)

    def chat(self, system: str | None = None) -> Conversation:
        """Begins a conversation in the model's own chat template.

        Args:
            system: instruction before everything else; None for none.

        Raises:
            InputError: the tokenizer or the chat template is missing or damaged.

        Example::

            conversation = model.chat(system="Answer briefly.")
            print(conversation.ask("Why is the sky blue?").text)
            print(conversation.ask("And at night?").text)
        """
        if system is not None:
            check_text("system", system)
        chat = tapeline.text.Chat.of(self.bundle.path, self.tokenizer, system)
        ends = load_eos_ids(self.bundle.path) | chat.end_ids()

        seen: list[Tiles] = []

        def stream(text: str, images: Sequence[ImageSource], options: GenerateOptions) -> TokenStream:
            if not images and not seen:
                return self._generator.stream([chat.ask(text, self.vocabulary)], options, ends, self.tokenizer)
            eyes = self._pictures
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
            InputError: the text has fewer than two tokens or more than fit, or the bundle does not return logits.
        """
        check_either("text", text, token_ids)
        if text is not None:
            check_text("text", text)
        names = [entry_point.name for entry_point in self.bundle.config.entry_points]
        if "prefill" not in names and "forward" in names:
            vocabulary = int(self.bundle.config.model.get("vocabulary", 0))
            ids = self._checked(text, token_ids, vocabulary)
            return scores(ids, forward_logits(self.bundle, self._session, ids))
        return self._generator.scores(self._checked(text, token_ids, self.vocabulary))

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
            InputError: the bundle lacks a tokenizer, or the text has zero tokens.
        """
        check_text("text", text)
        return self._encode(text, self.vocabulary)

    def close(self) -> None:
        """Closes the session; later calls fail.

        Waits until the weights are compared with their hash, if that was left to the background.

        Raises:
            DescriptionError: the weights are not those that were exported.
        """
        self.__exit__(None, None, None)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.__exit__(kind, error, trace)
        if kind is None:
            self.bundle.checks.wait(lambda: self._progress(ProgressEvent(_COMPARING)))

    @cached_property
    def _pictures(self) -> PicturePrompts:
        return PicturePrompts(self.bundle, self.tokenizer)

    def _encode(self, text: str, vocabulary: int) -> list[int]:
        if self.tokenizer is None:
            raise InputError(f"`prompt`: {self.bundle.path} has no tokenizer: give `token_ids`")
        return self.tokenizer.encode(text, vocabulary)

    def _checked(self, text: str | None, token_ids: Sequence[int] | None, vocabulary: int) -> list[int]:
        if token_ids is None:
            return self._encode("" if text is None else text, vocabulary)
        return self._checked_ids(token_ids, vocabulary)

    def _checked_ids(self, token_ids: Sequence[int], vocabulary: int) -> list[int]:
        check_ids(token_ids, vocabulary, "`token_ids`")
        return [*map(int, token_ids)]


def _finished(stream: TokenStream, on_token: Callable[[GeneratedToken], object] | None) -> list[Generation]:
    for token in stream:
        if on_token is not None:
            on_token(token)
    return stream.answers
