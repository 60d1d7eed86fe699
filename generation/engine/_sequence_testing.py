"""Models of one sequence for tests, and the engine's answers with them."""

from collections.abc import Sequence
from typing import Final

import numpy as np

from generation import Drafter, KnownLogits, Prediction, SamplingConfig, StopRule, TokenStep, rows_of
from generation.engine._answer_steps import AnswerSteps
from generation.engine._drafts import Drafting
from generation.engine._one_row import OneRow, SequenceModel
from generation.engine._request import TokenRequest
from generation.engine._runner import ModelRunner
from generation.engine._settings import EngineSettings
from generation.engine._steps import StepEngine

VOCABULARY: Final = 23
GREEDY: Final = SamplingConfig()
ONE_ROW: Final = EngineSettings(exact=False, store_bytes=0, decode_after_prompts=False, deadline=None)


def answers_of(
    model: SequenceModel | ModelRunner,
    prompt: Sequence[int],
    stop: StopRule,
    config: SamplingConfig = GREEDY,
    drafter: Drafter | None = None,
    most: int | None = None,
) -> AnswerSteps:
    """Returns the steps of an answer by an engine of its own.

    Args:
        model: model with empty caches.
        prompt: tokens of the prompt.
        stop: rule that ends the answer.
        config: settings of sampling.
        drafter: what drafts; None for none.
        most: greatest length of a draft; as many as a call of the model verifies where None.
    """
    runner = OneRow(model) if isinstance(model, SequenceModel) else model
    drafting = None if drafter is None else Drafting(begin=lambda row, fresh: drafter, tokens=most)
    request = TokenRequest(
        prompt=prompt,
        sampling=config,
        max_new_tokens=stop.max_new_tokens,
        ends=stop.eos_ids,
        ignore_eos=stop.ignore_eos,
        predictions=True,
    )
    return AnswerSteps(StepEngine(runner, ONE_ROW, drafting=drafting), [request])


def steps_of(
    model: SequenceModel | ModelRunner,
    prompt: Sequence[int],
    stop: StopRule,
    config: SamplingConfig = GREEDY,
    drafter: Drafter | None = None,
    most: int | None = None,
) -> list[TokenStep]:
    """Returns the tokens of an answer; logits of each were read when it came. Arguments as of ``answers_of``."""
    steps: list[TokenStep] = []
    for _, step in answers_of(model, prompt, stop, config, drafter, most):
        steps.append(TokenStep(step.token_id, KnownLogits(step.logits.copy()), step.ended))
    return steps


def tokens_of(
    model: SequenceModel | ModelRunner, prompt: Sequence[int], stop: StopRule, config: SamplingConfig = GREEDY
) -> list[int]:
    """Returns the token ids of an answer; arguments as of ``answers_of``."""
    return [step.token_id for step in steps_of(model, prompt, stop, config)]


class KeepingModel(SequenceModel):
    """Keeps what it has seen, and answers with what follows from all of it: a wrong cache is a wrong token.

    A recurrent one has a state of all tokens that were fed, and takes none twice and none out of turn.
    """

    def __init__(self, chunk: int, capacity: int, recurrent: bool = False, verify_tokens: int = 0) -> None:
        """Makes an empty cache."""
        self.chunk, self.capacity, self.vocabulary = chunk, capacity, VOCABULARY
        self.recurrent, self.verify_tokens = recurrent, verify_tokens
        self.position_axes = (None,) if recurrent else ()
        self.cache = [-1] * capacity
        self.calls: list[tuple[str, int]] = []
        self.state: list[int] = []
        self.kept: list[int] | None = None

    def prefill(
        self, token_ids: np.ndarray, position: int, last: int, embeddings: np.ndarray | None = None
    ) -> KnownLogits:
        """See ``SequenceModel``."""
        assert embeddings is None
        assert token_ids.dtype == np.int32
        assert token_ids.shape == (1, self.chunk)
        assert 0 <= position <= self.capacity - self.chunk
        assert 0 <= last < self.chunk
        self.calls.append(("prefill", position))
        self._feed(token_ids[0, : last + 1].tolist(), position)
        self.cache[position : position + self.chunk] = token_ids[0].tolist()
        return self.prediction(position + last + 1)

    def decode(self, token_id: int, position: int) -> KnownLogits:
        """See ``SequenceModel``."""
        assert 0 <= position < self.capacity
        self.calls.append(("decode", position))
        self._feed([token_id], position)
        self.cache[position] = token_id
        return self.prediction(position + 1)

    def verify(self, token_ids: np.ndarray, position: int, last: int) -> Sequence[Prediction]:
        """See ``SequenceModel``; rows beyond ``last`` hold nonsense, and so do their places in the cache."""
        assert token_ids.dtype == np.int32
        assert token_ids.shape == (1, self.verify_tokens)
        assert 0 <= position <= self.capacity - self.verify_tokens
        assert 0 < last < self.verify_tokens
        assert -1 not in self.cache[:position]
        self._feed(token_ids[0, : last + 1].tolist(), position)
        self.calls.append(("verify", position))
        self.cache[position : position + self.verify_tokens] = token_ids[0].tolist()
        rows = np.full((self.verify_tokens, VOCABULARY), np.nan, np.float32)
        for row in range(last + 1):
            rows[row] = self.prediction(position + row + 1).logits()
        return rows_of(rows)

    def clear_states(self) -> None:
        """See ``SequenceModel``."""
        self.state = []

    def keep_states(self) -> None:
        """See ``SequenceModel``."""
        assert self.recurrent
        self.kept = list(self.state)

    def restore_states(self) -> None:
        """See ``SequenceModel``."""
        assert self.kept is not None
        self.state, self.kept = self.kept, None

    def read_row(self, start: int, stop: int) -> Sequence[np.ndarray]:
        """Returns the state."""
        del start, stop
        return [np.array(self.state, np.int64)]

    def write_row(self, start: int, arrays: Sequence[np.ndarray]) -> None:
        """Replaces the state."""
        del start
        self.state = arrays[0].tolist()

    def prediction(self, length: int) -> KnownLogits:
        """Returns the prediction after so many tokens of the cache."""
        return KnownLogits(logits_after(self.cache[:length]))

    def _feed(self, tokens: list[int], position: int) -> None:
        if self.recurrent:
            assert len(self.state) == position
            self.state += tokens


def logits_after(seen: Sequence[int]) -> np.ndarray:
    """Returns the logits f32 [V] of ``KeepingModel`` after some tokens."""
    digest = 0
    for token in seen:
        digest = (digest * 31 + token + 1) % 1_000_003
    return np.random.default_rng(digest).standard_normal(VOCABULARY).astype(np.float32)


def greedy_after(prompt: Sequence[int], steps: int) -> list[int]:
    """Returns the greedy answer of ``KeepingModel`` to a prompt."""
    seen = list(prompt)
    for _ in range(steps):
        seen.append(int(logits_after(seen).argmax()))
    return seen[len(prompt) :]
