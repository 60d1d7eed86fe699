"""Options of a generation and what comes of it."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Literal, Protocol, TypedDict

import numpy as np

from lang_core import InputError, checked_choices, near_names
from tapeline.text import IdStream, Tokenizer
from transformer_core.generation import SamplingConfig, Speculation, TokenStep


class GenerateKeywords(TypedDict, total=False):
    """Fields of ``GenerateOptions`` as keyword arguments."""

    temperature: float
    top_k: int
    top_p: float
    min_p: float
    repetition_penalty: float
    seed: int
    presence_penalty: float
    frequency_penalty: float
    logit_bias: Mapping[int, float]
    max_new_tokens: int
    ignore_eos: bool


@checked_choices
@dataclass(frozen=True, kw_only=True)
class GenerateOptions(SamplingConfig):
    """Options of a generation: those of sampling, and when it ends.

    Attributes:
        max_new_tokens: largest number of new tokens.
        ignore_eos: True goes on after an end-of-sequence token.

    Raises:
        ConfigError: a value of sampling is out of its range.
    """

    max_new_tokens: int = 64
    ignore_eos: bool = False


def generate_options(given: GenerateKeywords) -> GenerateOptions:
    """Returns the options of keyword arguments.

    Raises:
        InputError: a name is unknown, or a value is out of its range.
    """
    known = [option.name for option in fields(GenerateOptions)]
    for name in given:
        if name not in known:
            raise InputError(f"unknown option {name!r}: known are {', '.join(known)}{near_names(name, known)}")
    return GenerateOptions(**given)


@checked_choices
@dataclass(frozen=True, slots=True)
class GeneratedToken:
    """New token of a prompt.

    Attributes:
        row: number of the prompt, from 0.
        token_id: the token.
        text: text that the token settles; often a word, sometimes empty. Ids where the bundle has no tokenizer.
        ended: ``eos`` or ``length`` where the token is the last one.
        step: the choice of the token, with its logits.
    """

    row: int
    token_id: int
    text: str
    ended: Literal["eos", "length"] | None
    step: TokenStep

    @property
    def logits(self) -> np.ndarray:
        """Logits f32 [V] that the token was chosen from. They can be read until the next token is asked for."""
        return self.step.logits


@checked_choices
@dataclass(slots=True)
class Generation:
    """Answer to one prompt.

    Attributes:
        text: new text; ids where the bundle has no tokenizer.
        token_ids: new tokens, without the end-of-sequence token.
        ended: ``eos`` or ``length``; None while tokens are still coming.
    """

    text: str = ""
    token_ids: list[int] = field(default_factory=list)
    ended: Literal["eos", "length"] | None = None


class Memory(Protocol):
    """Memory of earlier prompts.

    Attributes:
        reused: tokens of the last prompt that it had.
    """

    reused: int


class TokenStream(Iterator[GeneratedToken]):
    """New tokens as they come.

    Attributes:
        prompt_tokens: number of tokens of all prompts.
        answers: what came so far, per prompt.
    """

    def __init__(
        self,
        steps: Iterator[tuple[int, TokenStep]],
        prompts: Sequence[Sequence[int]],
        tokenizer: Tokenizer | None,
        *,
        memory: Memory | None,
        speculation: Speculation | None,
        on_end: Callable[[], None],
    ) -> None:
        """Runs nothing yet.

        Args:
            steps: (number of the prompt, next token).
            prompts: tokens of each prompt.
            tokenizer: turns tokens into text; None gives ids.
            memory: of the model, where there is one.
            speculation: of this stream, where there is one.
            on_end: is called behind the last token.
        """
        self.prompt_tokens = sum(map(len, prompts))
        self.answers = [Generation() for _ in prompts]
        self._pieces = [tokenizer.stream() if tokenizer else IdStream() for _ in prompts]
        self._memory, self._speculation = memory, speculation
        self._tokens = self._generated(steps, on_end)

    def _generated(
        self, steps: Iterator[tuple[int, TokenStep]], on_end: Callable[[], None]
    ) -> Iterator[GeneratedToken]:
        for row, step in steps:
            answer, pieces = self.answers[row], self._pieces[row]
            text = ""
            if step.ended != "eos":
                text = pieces.push(step.token_id)
                answer.token_ids.append(step.token_id)
            if step.ended:
                text += pieces.finish()
            answer.text += text
            answer.ended = step.ended
            yield GeneratedToken(row, step.token_id, text, step.ended, step)
        on_end()

    def __next__(self) -> GeneratedToken:
        return next(self._tokens)

    @property
    def reused(self) -> int:
        """Tokens of the prompt that the caches had of earlier ones."""
        return 0 if self._memory is None else self._memory.reused

    @property
    def drafted(self) -> int:
        """Tokens that were proposed by speculation."""
        return 0 if self._speculation is None else self._speculation.drafted

    @property
    def accepted(self) -> int:
        """Proposed tokens that were right."""
        return 0 if self._speculation is None else self._speculation.accepted

    @property
    def head_calls(self) -> int:
        """Calls of the model's multi-token prediction head."""
        return 0 if self._speculation is None else self._speculation.head_calls
