"""Answers of encoder-decoders to texts: greedy or sampled token by token, or by beam search."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Final, NoReturn

import numpy as np

from generation import AnswerRules, AnswerScores, BeamRows, TokenStep, beam_search, check_room
from generation.engine import AnswerSteps, EngineSettings, OneRow, StepEngine, TokenConstraint, TokenRequest
from lang_core import InputError
from runtime import Session
from tapeline.bundle import Bundle
from tapeline.grammar import compile_constraints
from tapeline.runners import SourceModel
from tapeline.running._generation import MOST_NEW_TOKENS, GenerateOptions, TokenStream, check_stops, until_another
from tapeline.text import Tokenizer, Translation, find_tokenizer

_SETTINGS: Final = EngineSettings(
    max_waiting=1 << 30, deadline=None, exact=False, checkpoint_pieces=False, decode_after_prompts=False, store_bytes=0
)


class TextToText:
    """Answers sources one after the other; one stream at a time.

    As transformers' ``generate`` does it: answers begin, are held to rules and end by generation_config.json.
    """

    def __init__(self, bundle: Bundle, session: Session) -> None:
        """Runs nothing yet."""
        self._bundle: Final = bundle
        self._session: Final = session
        self._stream = 0

    @property
    def vocabulary(self) -> int:
        """Number of the tokens that answers have, V."""
        return self._model.vocabulary

    @property
    def source_vocabulary(self) -> int:
        """Number of the tokens that sources have."""
        return self._model.source_vocabulary

    @property
    def token_bytes(self) -> int:
        """Bytes of token ids and their positions that were moved so far."""
        return self._model.token_bytes

    def encode(self, text: str, language: str | None = None) -> list[int]:
        """Returns the tokens of a source in a language.

        Raises:
            InputError: the bundle lacks a tokenizer, or as for ``Translation.source``.
        """
        return self._translation("prompt").source(text, language, self.source_vocabulary)

    def stream(
        self,
        sources: Sequence[Sequence[int]],
        options: GenerateOptions,
        *,
        at_once: bool,
        check: Callable[[], object] | None = None,
    ) -> TokenStream:
        """Answers sources.

        Args:
            sources: tokens of each.
            options: of the generation.
            at_once: True refuses an empty list of sources.
            check: is called before each step of the model; its exceptions end the stream.

        Raises:
            InputError: options are out of range or contradict each other, or a source does not fit.
        """
        tokenizer, model = self._tokenizer, self._model
        check_stops(options, tokenizer, self._bundle)
        if at_once and not sources:
            raise InputError("0 prompts: give at least one")
        rules = self._rules(options)
        capacity = model.capacity
        most = capacity if rules.max_length is None else min(rules.max_length - 1, capacity)
        limit = options.max_new_tokens or max(1, min(most, MOST_NEW_TOKENS))
        check_room([rules.start], limit, capacity, "start of an answer")
        answers = _Answers(self, model, rules, options, limit, check or (lambda: None))
        constraints = self._constraints(options, tokenizer, rules, len(sources))
        self._stream += 1
        mine = self._stream
        steps = answers.steps(sources, constraints)
        return TokenStream(
            until_another(steps, lambda: self._stream != mine, self._bundle),
            sources,
            tokenizer,
            limits=[limit] * len(sources),
            stops=options.stops,
            counts=answers,
            on_stop=answers.cancel,
        )

    def _rules(self, options: GenerateOptions) -> AnswerRules:
        """Returns the rules of the bundle's files, with those of the options in their place."""
        rules = AnswerRules.read(self._bundle.path)
        single = _single_row_option(options)
        beams = options.num_beams
        if beams is None:
            beams = 1 if single else rules.beams
        if beams > 1 and single:
            raise InputError(f"`num_beams`: beam search does not go with `{single}`: leave one of them out")
        first, behind = None, None
        if options.target_language is not None:
            first, behind = self._translation("target_language").target(options.target_language)
        penalty = options.repetition_penalty
        return replace(
            rules,
            beams=beams,
            length_penalty=rules.length_penalty if options.length_penalty is None else options.length_penalty,
            early_stopping=rules.early_stopping if options.early_stopping is None else options.early_stopping,
            start=rules.start if first is None else first,
            forced_first=rules.forced_first if behind is None else behind,
            repetition_penalty=rules.repetition_penalty if penalty == 1 else penalty,
            ends=() if options.ignore_eos else rules.ends,
        )

    def _constraints(
        self, options: GenerateOptions, tokenizer: Tokenizer | None, rules: AnswerRules, count: int
    ) -> Sequence[TokenConstraint | None]:
        if options.constraint is None or not count:
            return [None] * count
        if tokenizer is None:
            raise InputError(
                f"`constraint`: {self._bundle.path} has no tokenizer, so its answers have no text: leave it out"
            )
        return compile_constraints(options.constraint, tokenizer, frozenset(rules.ends), count)

    def _translation(self, name: str) -> Translation:
        if self._tokenizer is None:
            raise InputError(f"`{name}`: {self._bundle.path} has no tokenizer: give `token_ids`")
        return Translation(self._bundle.path, self._tokenizer)

    @cached_property
    def _tokenizer(self) -> Tokenizer | None:
        return find_tokenizer(self._bundle.path)

    @cached_property
    def _model(self) -> SourceModel:
        return SourceModel(self._bundle, self._session)


class _Answers:
    """Answers of one stream; an ``AnswerCounts``.

    Attributes:
        reused: 0: no answer begins with what caches hold.
        drafted: 0: nothing is speculated.
        accepted: 0.
        head_calls: 0.
    """

    reused = drafted = accepted = head_calls = 0

    def __init__(
        self,
        owner: TextToText,
        model: SourceModel,
        rules: AnswerRules,
        options: GenerateOptions,
        limit: int,
        check: Callable[[], object],
    ) -> None:
        self._owner: Final = owner
        self._model: Final = model
        self._rules: Final = rules
        self._options: Final = options
        self._limit: Final = limit
        self._check: Final = check
        self._running: AnswerSteps | None = None

    def steps(
        self, sources: Sequence[Sequence[int]], constraints: Sequence[TokenConstraint | None]
    ) -> Iterator[tuple[int, TokenStep]]:
        """Yields the next tokens with the number of their source."""
        for row, (source, constraint) in enumerate(zip(sources, constraints, strict=True)):
            self._check()
            self._model.encode(source)
            scores = AnswerScores(self._rules, source, self._limit + 1)
            steps = self._searched(scores) if self._rules.beams > 1 else self._taken(scores, constraint)
            for step in steps:
                yield row, step

    def cancel(self, row: int) -> None:
        """Ends the answer that runs."""
        del row
        if self._running is not None:
            self._running.cancel(0)

    def _taken(self, scores: AnswerScores, constraint: TokenConstraint | None) -> Iterator[TokenStep]:
        rules = self._rules
        held = constraint
        if rules.masks:
            held = _RuledAnswer(scores, rules.start, constraint)
        request = TokenRequest(
            prompt=[rules.start],
            constraint=held,
            sampling=replace(self._options, repetition_penalty=rules.repetition_penalty),
            max_new_tokens=self._limit,
            ends=frozenset(rules.ends),
            ignore_eos=self._options.ignore_eos,
            predictions=True,
        )
        engine = StepEngine(OneRow(self._model), _SETTINGS, remake=lambda: OneRow(self._model))
        self._running = AnswerSteps(engine, [request])
        for _, step in self._running:
            yield step
            self._check()
        self._running = None

    def _searched(self, scores: AnswerScores) -> Iterator[TokenStep]:
        rules = self._rules
        rows = _CheckedBeams(self._model.beams(rules.beams), self._check)
        answer = beam_search(rows, rules, scores, self._limit + 1)
        for number, token in enumerate(answer.tokens, 1):
            last = number == len(answer.tokens)
            yield TokenStep(token, _Searched(), None if not last else "eos" if token in rules.ends else "length")


class _CheckedBeams:
    """Rows of beam search with a call before each step."""

    def __init__(self, rows: BeamRows, check: Callable[[], object]) -> None:
        self._rows: Final = rows
        self._check: Final = check

    def step(self, tokens: Sequence[int], parents: Sequence[int]) -> np.ndarray:
        self._check()
        return self._rows.step(tokens, parents)


class _RuledAnswer:
    """Constraint of an answer: the rules, and the constraint of its request."""

    def __init__(self, scores: AnswerScores, start: int, inner: TokenConstraint | None) -> None:
        self._scores: Final = scores
        self._tokens: Final = [start]
        self._inner: Final = inner

    @property
    def finished(self) -> bool:
        return self._inner is not None and self._inner.finished

    def mask(self, out: np.ndarray) -> None:
        if self._inner is None:
            out[:] = True
        else:
            self._inner.mask(out)
        scores = self._scores(np.zeros(len(out), np.float32), self._tokens, penalize=False)
        out &= np.isfinite(scores)

    def accept(self, token_id: int) -> None:
        self._tokens.append(token_id)
        if self._inner is not None:
            self._inner.accept(token_id)


class _Searched:
    """Prediction of a token of beam search, of which no logits are kept."""

    def logits(self) -> NoReturn:
        raise InputError("beam search keeps no logits: ask for them with num_beams=1")

    def likeliest(self) -> NoReturn:
        self.logits()


def _single_row_option(options: GenerateOptions) -> str:
    """Returns the name of an option that beams do not support; empty if none is given."""
    given = {
        "temperature": options.temperature > 0,
        "constraint": options.constraint is not None,
        "presence_penalty": options.presence_penalty != 0,
        "frequency_penalty": options.frequency_penalty != 0,
        "logit_bias": bool(options.logit_bias),
    }
    return next((name for name, is_given in given.items() if is_given), "")
