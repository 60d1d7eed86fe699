"""Options and results of a generation."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Final, Literal, Protocol, TypedDict

import numpy as np

from generation import EarlyStopping, SamplingConfig, StopRule, TokenStep
from lang_core import ConfigError, InputError, checked_choices, near_names, some_of
from tapeline.bundle import Bundle
from tapeline.grammar import GrammarSpec
from tapeline.text import IdStream, StopText, Tokenizer

MOST_NEW_TOKENS: Final = 1024
"""Largest number of new tokens of an answer whose user gives none, such as a conversation's."""

Ended = Literal["eos", "length", "stop"]


class SamplingKeywords(TypedDict, total=False):
    """Options of a generation that a model's files may recommend."""

    temperature: float
    top_k: int
    top_p: float
    min_p: float
    repetition_penalty: float


class GenerateKeywords(SamplingKeywords, total=False):
    """Fields of ``GenerateOptions`` as keyword arguments."""

    seed: int
    presence_penalty: float
    frequency_penalty: float
    logit_bias: Mapping[int, float]
    max_new_tokens: int | None
    ignore_eos: bool
    stop: str | Sequence[str] | None
    constraint: GrammarSpec | None
    num_beams: int | None
    length_penalty: float | None
    early_stopping: EarlyStopping | None
    source_language: str | None
    target_language: str | None


@checked_choices
@dataclass(frozen=True, kw_only=True)
class GenerateOptions(SamplingConfig):
    """Options of a generation: those of sampling, and when it ends.

    Attributes:
        max_new_tokens: largest number of new tokens; None for as many as the context has room for, at most 1,024.
        ignore_eos: True goes on after an end-of-sequence token.
        stop: string that ends the answer, or several; the answer's text ends before it. The first string that is
            complete counts, and of those that are complete at once the longest.
        constraint: constraint of the text: ``tapeline.JsonSchema(schema)``, ``JsonObject()``, ``Choices(texts)``,
            ``RegularExpression(pattern)`` or ``LarkGrammar(text)``. The answer ends when the constraint is complete; an
            answer cut off by ``max_new_tokens`` is a prefix of such a text.
        num_beams: number of beams of an encoder-decoder's beam search; None for that of generation_config.json, or 1,
            with which answers come token by token. This option and those below are for encoder-decoders of texts.
        length_penalty: exponent of an answer's length in its score; None for that of generation_config.json, or 1.
        early_stopping: True ends beam search when there are as many answers as beams, ``never`` only when no beam can
            become better, False before that by a bound; None for that of generation_config.json, or False.
        source_language: language of the prompt, as the tokenizer names it (``eng_Latn``, ``en_XX``, ``en``).
        target_language: language of the answer.

    Raises:
        ConfigError: a value is of the wrong type or out of its range.
    """

    max_new_tokens: int | None = 64
    ignore_eos: bool = False
    stop: str | Sequence[str] | None = None
    constraint: GrammarSpec | None = None
    num_beams: int | None = None
    length_penalty: float | None = None
    early_stopping: EarlyStopping | None = None
    source_language: str | None = None
    target_language: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        limit = self.max_new_tokens
        if limit is not None and (not isinstance(limit, int) or isinstance(limit, bool)):
            raise ConfigError(f"max_new_tokens={limit!r:.80}: expected an integer of at least 1, or None")
        several = isinstance(self.stop, list | tuple)
        texts = self.stops if several or isinstance(self.stop, str | None) else (self.stop,)
        if not all(isinstance(text, str) and text for text in texts):
            raise ConfigError(f"stop={self.stop!r:.80}: expected a text that is not empty, or a list of such texts")

    def check_decoder(self, bundle: Bundle) -> None:
        """Checks that no option is for encoder-decoders alone.

        Raises:
            InputError: one is given; names it.
        """
        for name in ("num_beams", "length_penalty", "early_stopping", "source_language", "target_language"):
            value = getattr(self, name)
            if value is not None and (name, value) != ("num_beams", 1):
                raise InputError(
                    f"`{name}`: for encoder-decoders that take texts (T5, BART, Marian, NLLB, ...); {bundle.path} is "
                    f"a {bundle.config.model.get('family')}: leave it out"
                )

    @property
    def stops(self) -> tuple[str, ...]:
        """Strings that end the answer."""
        if self.stop is None:
            return ()
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop)

    def new_tokens(self, prompt: int, capacity: int) -> int:
        """Returns the largest number of new tokens after a prompt.

        Args:
            prompt: number of the prompt's tokens.
            capacity: positions of the caches; the last new token takes none.
        """
        if self.max_new_tokens is not None:
            return self.max_new_tokens
        return max(1, min(MOST_NEW_TOKENS, capacity - prompt + 1))

    def rules(self, ends: frozenset[int], prompts: Sequence[Sequence[int]], capacity: int) -> list[StopRule]:
        """Returns the rules that end the answers to prompts.

        Args:
            ends: tokens that end an answer.
            prompts: tokens of each prompt.
            capacity: positions of the caches.
        """
        return [StopRule(ends, self.new_tokens(len(prompt), capacity), self.ignore_eos) for prompt in prompts]


def check_stops(options: GenerateOptions, tokenizer: Tokenizer | None, bundle: Bundle) -> None:
    """Checks that stop strings can be found.

    Raises:
        InputError: stop strings are given, and the bundle lacks a tokenizer.
    """
    if options.stops and tokenizer is None:
        raise InputError(f"`stop`: {bundle.path} has no tokenizer, so its answers have no text: leave it out")


def until_another(
    steps: Iterator[tuple[int, TokenStep]], another: Callable[[], bool], bundle: Bundle
) -> Iterator[tuple[int, TokenStep]]:
    """Passes steps of a stream on until another stream begins on the same model.

    Raises:
        InputError: ``another`` returns True.
    """
    while True:
        if another():
            raise InputError(
                f"this stream ended when another began on the same model: load {bundle.path} twice to run two"
            )
        step = next(steps, None)
        if step is None:
            return
        yield step


_PROMPTS: Final = ("prompt", "prompts", "token_ids", "images", "on_token")  # arguments beside the options


def generate_options(given: GenerateKeywords) -> GenerateOptions:
    """Returns the options of keyword arguments.

    Raises:
        InputError: a name is unknown, or a value is out of its range.
    """
    known = [option.name for option in fields(GenerateOptions)]
    for name in given:
        if name not in known:
            hint = near_names(name, [*known, *_PROMPTS])
            raise InputError(f"unknown option {name!r}: known are {some_of(name, known, 5)}{hint}")
    return GenerateOptions(**given)


@checked_choices
@dataclass(frozen=True, slots=True)
class GeneratedToken:
    """New token of a prompt.

    Attributes:
        row: number of the prompt, from 0.
        token_id: the token.
        text: text that the token settles; often a word, sometimes empty. Ids if the bundle lacks a tokenizer.
        ended: ``eos``, ``length`` or ``stop`` (a stop string) if the token is the last one.
        step: the choice of the token, with its logits.
    """

    row: int
    token_id: int
    text: str
    ended: Ended | None
    step: TokenStep

    @property
    def logits(self) -> np.ndarray:
        """Logits f32 [V] that the token was chosen from. They can be read until the next token is asked for."""
        return self.step.logits

    @property
    def logprob(self) -> float:
        """Logarithm of the token's probability by the model, before any step of sampling. Read it as ``logits``."""
        logits = self.logits.astype(np.float64)
        logits -= logits.max()
        return float(logits[self.token_id] - np.log(np.exp(logits).sum()))


@checked_choices
@dataclass(slots=True)
class Generation:
    """Answer to one prompt.

    Attributes:
        text: new text, without a stop string; ids if the bundle lacks a tokenizer.
        token_ids: new tokens, without the end-of-sequence token; the last ones may be those of a stop string.
        ended: ``eos`` (an end token, or the constraint allows nothing more), ``length`` (the answer was cut off) or
            ``stop`` (a stop string); None while tokens are still coming.
    """

    text: str = ""
    token_ids: list[int] = field(default_factory=list)
    ended: Ended | None = None

    @property
    def finish_reason(self) -> Literal["stop", "length"] | None:
        """Why the answer ended, as OpenAI's API names it: ``length`` if it was cut off."""
        return "stop" if self.ended in ("eos", "stop") else self.ended


class AnswerCounts(Protocol):
    """Tokens of a stream without their own step."""

    @property
    def reused(self) -> int:
        """Tokens of the prompts that the caches had of earlier ones."""
        ...

    @property
    def drafted(self) -> int:
        """Tokens that were proposed by speculation."""
        ...

    @property
    def accepted(self) -> int:
        """Proposed tokens that were right."""
        ...

    @property
    def head_calls(self) -> int:
        """Calls of the model's multi-token prediction head."""
        ...


class TokenStream(Iterator[GeneratedToken]):
    """New tokens as they come.

    Attributes:
        prompt_tokens: number of tokens of all prompts.
        limits: largest number of new tokens, per prompt.
        answers: answers so far, per prompt.
    """

    def __init__(
        self,
        steps: Iterator[tuple[int, TokenStep]],
        prompts: Sequence[Sequence[int]],
        tokenizer: Tokenizer | None,
        *,
        limits: Sequence[int],
        stops: Sequence[str],
        counts: AnswerCounts,
        on_stop: Callable[[int], object],
        on_end: Callable[[], object] = lambda: None,
    ) -> None:
        """Runs nothing yet.

        Args:
            steps: (number of the prompt, next token).
            prompts: tokens of each prompt.
            tokenizer: turns tokens into text; None gives ids.
            limits: largest number of new tokens of each prompt.
            stops: strings that end an answer.
            counts: of this stream.
            on_stop: receives the number of a prompt when a stop string ends its answer; it does not need further steps.
            on_end: is called behind the last token.
        """
        self.prompt_tokens = sum(map(len, prompts))
        self.limits = tuple(limits)
        self.answers = [Generation() for _ in prompts]
        self._pieces = [tokenizer.stream() if tokenizer else IdStream() for _ in prompts]
        self._texts = [StopText(stops) for _ in prompts]
        self._counts = counts
        self._on_stop = on_stop
        self._tokens = self._generated(steps, on_end)

    def _generated(
        self, steps: Iterator[tuple[int, TokenStep]], on_end: Callable[[], object]
    ) -> Iterator[GeneratedToken]:
        for row, step in steps:
            answer, pieces, texts = self.answers[row], self._pieces[row], self._texts[row]
            if answer.ended:
                continue  # a batch goes on for its other prompts
            text = ""
            if step.ended != "eos":
                text = texts.push(pieces.push(step.token_id))
                answer.token_ids.append(step.token_id)
            ended: Ended | None = "eos" if step.ended == "complete" else step.ended
            if ended:
                text += texts.push(pieces.finish())
            if texts.stopped:
                ended = "stop"
                self._on_stop(row)
            elif ended:
                text += texts.finish()
            answer.text += text
            answer.ended = ended
            yield GeneratedToken(row, step.token_id, text, ended, step)
            if all(one.ended for one in self.answers):
                break
        on_end()

    def __next__(self) -> GeneratedToken:
        return next(self._tokens)

    @property
    def reused(self) -> int:
        """Tokens of the prompts that the caches had of earlier ones."""
        return self._counts.reused

    @property
    def drafted(self) -> int:
        """Tokens that were proposed by speculation."""
        return self._counts.drafted

    @property
    def accepted(self) -> int:
        """Proposed tokens that were right."""
        return self._counts.accepted

    @property
    def head_calls(self) -> int:
        """Calls of the model's multi-token prediction head."""
        return self._counts.head_calls
