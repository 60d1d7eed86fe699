"""Several prompts at once, of different lengths, in models of every kind: each has the tokens that it has alone."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from generation import Prediction, Sampler, SamplingConfig, StopRule, TokenStep, generate_batch, rows_of
from generation.engine import SequenceModel
from generation.engine._sequence_testing import steps_of
from transformer_core.layers._weights_testing import context_of
from transformer_core.models import DecoderLM, entry_points
from transformer_core.models._tiny_testing import HYBRID, VARIANTS, changed


def _by_row(events: Any, rows: int) -> list[list[TokenStep]]:
    steps: list[list[TokenStep]] = [[] for _ in range(rows)]
    for row, step in events:
        steps[row].append(step)
    return steps


class _Eager:
    """A model in the eager context: as a batch with a position per row, or as one sequence."""

    def __init__(self, model: DecoderLM, batch: int, chunk: int, capacity: int, positions: str) -> None:
        self.recurrent = bool(model.config.mixer)
        self.ctx, self.batch, self.chunk, self.capacity = context_of(model), batch, chunk, capacity
        sizes: Any = {"batch": batch, "sequence": chunk, "max_sequence": capacity}
        self._points = entry_points(model, positions=positions, window_caches="ring", **sizes)
        self._caches: list[Any] = [
            self.ctx.ops.zeros(a.spec.shape, a.spec.dtype) for a in self._points[0].arguments if a.alias_result
        ]

    def _run(self, point: int, *arrays: Any) -> Sequence[Prediction]:
        given_ = [self.ctx.constant(np.asarray(array, np.int32)) for array in arrays]
        logits, *self._caches, _ = self._points[point](self.ctx, *given_, *self._caches).values()
        return rows_of(logits.numpy())

    def prefill(self, token_ids: np.ndarray, position: Any, last: Any) -> Any:
        rows = self._run(0, token_ids, position, last)
        return rows if isinstance(position, np.ndarray) else rows[0]

    def decode(self, token_ids: Any, position: Any) -> Any:
        rows = self._run(1, np.reshape(token_ids, (-1, 1)), position)
        return rows if isinstance(position, np.ndarray) else rows[0]


class _Alone(SequenceModel):
    """A batch of one sequence, with empty caches."""

    vocabulary = 31

    def __init__(self, eager: _Eager) -> None:
        self._eager, self.chunk, self.capacity = eager, eager.chunk, eager.capacity
        self.recurrent = eager.recurrent

    def prefill(
        self, token_ids: np.ndarray, position: int, last: int, embeddings: np.ndarray | None = None
    ) -> Prediction:
        return self._eager.prefill(token_ids, position, last)

    def decode(self, token_id: int, position: int) -> Prediction:
        return self._eager.decode(token_id, position)

    def clear_states(self) -> None:
        """Does nothing, as they are empty."""


@pytest.mark.parametrize("name", ["llama", "mixed", "latent", "experts", "hybrid"])
def test_prompts_of_different_lengths_give_the_tokens_that_each_gives_alone(name: str) -> None:
    model = DecoderLM(HYBRID if name == "hybrid" else changed(**VARIANTS[name]))
    random = np.random.default_rng(9)
    prompts: Sequence[list[int]] = [random.integers(0, 31, length).tolist() for length in (7, 1, 12)]
    stop = StopRule(frozenset(), 10)
    events = generate_batch(
        _Eager(model, 4, 5, 21, "per_row"), prompts, [Sampler(SamplingConfig(), 31) for _ in prompts], stop
    )
    for prompt, steps in zip(prompts, _by_row(events, 3), strict=True):
        alone = steps_of(_Alone(_Eager(model, 1, 5, 21, "shared")), prompt, stop)
        assert [step.token_id for step in steps] == [step.token_id for step in alone]
        for mine, theirs in zip(steps, alone, strict=True):
            np.testing.assert_allclose(mine.logits, theirs.logits, rtol=1e-4, atol=1e-4)
