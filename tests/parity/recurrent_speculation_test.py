"""Drafts on models with states: whatever is accepted and rejected, the tokens are those of plain decoding."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from generation import Prediction, SamplingConfig, StopRule, rows_of
from generation.engine import DraftRows, OneRow, SequenceModel
from generation.engine._sequence_testing import answers_of
from lang_core import EagerExecutionContext
from tests.goldens.cases import CASES, GoldenCase
from tests.goldens.golden_files import read_golden
from tests.goldens.samples import SAMPLE, config_of
from tests.parity._golden_models import empty_caches, opened
from transformer_core.models import DecoderLM, entry_points

_EXAMPLES = 60 if os.environ.get("TAPELINE_LONG") else 6


class _Eager(SequenceModel):
    """Model of one sequence in the eager context."""

    recurrent = True

    def __init__(self, model: DecoderLM, ctx: EagerExecutionContext, chunk: int, capacity: int, takes: int) -> None:
        self.ctx, self.chunk, self.capacity, self.verify_tokens = ctx, chunk, capacity, takes
        sizes: Any = {"sequence": chunk, "max_sequence": capacity, "verify_tokens": takes}
        points = entry_points(model, names=("prefill", "decode", "verify"), **sizes)
        self._prefill, self._decode, self._verify = points
        self._caches: list[Any] = empty_caches(self._prefill)
        self._states = [a.name.endswith("_state") for a in self._prefill.arguments if a.alias_result]
        self._kept: list[Any] | None = None
        self.vocabulary = model.config.vocabulary
        self.position_axes = (None,) * len(self._caches)

    def clear_states(self) -> None:
        self._caches = empty_caches(self._prefill)

    def read_row(self, start: int, stop: int) -> Sequence[Any]:
        return list(self._caches)

    def write_row(self, start: int, arrays: Sequence[Any]) -> None:
        both = zip(self._states, arrays, self._caches, strict=True)
        self._caches = [old if is_state else new for is_state, old, new in both]

    def prefill(
        self, token_ids: np.ndarray, position: int, last: int, embeddings: np.ndarray | None = None
    ) -> Prediction:
        return self._run(self._prefill, token_ids, position, last)[0]

    def decode(self, token_id: int, position: int) -> Prediction:
        return self._run(self._decode, np.array([[token_id]], np.int32), position)[0]

    def verify(self, token_ids: np.ndarray, position: int, last: int) -> Sequence[Prediction]:
        return self._run(self._verify, token_ids, position, last)

    def keep_states(self) -> None:
        self._kept = list(self._caches)

    def restore_states(self) -> None:
        assert self._kept is not None
        kept, self._kept = self._kept, None
        both = zip(self._states, kept, self._caches, strict=True)
        self._caches = [old if is_state else new for is_state, old, new in both]

    def _run(self, point: Any, *given: Any) -> Sequence[Prediction]:
        logits, *self._caches, _ = point(self.ctx, *[np.asarray(g, np.int32) for g in given], *self._caches).values()
        return rows_of(logits.numpy().reshape(-1, logits.shape[-1]))


class _Drawn:
    """Drafts of the tokens to come, of drawn lengths and with drawn errors."""

    def __init__(self, tokens: Sequence[int], lengths: Sequence[int], errs_at: Sequence[int]) -> None:
        self._tokens, self._lengths, self._errs_at, self._calls = tokens, lengths, errs_at, 0

    def propose(self, history: Sequence[int], count: int) -> list[int]:
        length = min(count, self._lengths[self._calls % len(self._lengths)])
        draft = list(self._tokens[len(history) : len(history) + length])
        at = self._errs_at[self._calls % len(self._errs_at)]
        self._calls += 1
        if at < len(draft):
            draft[at] += 1 if draft[at] < 50 else -1
        return draft


@contextmanager
def _model(name: str, directory: Path, chunk: int, room: int, takes: int) -> Iterator[_Eager]:
    case = CASES[name]
    with opened(case, directory) as (model, ctx):
        yield _Eager(model, ctx, chunk, len(case.prompt[0]) + case.steps - 1 + room, takes)


def _said(model: _Eager, name: str, config: SamplingConfig, drafter: Any, takes: int) -> list[int]:
    case = CASES[name]
    model.clear_states()
    stop, most = StopRule(frozenset(), case.steps), None if drafter is None else takes - 1
    return [step.token_id for _, step in answers_of(model, case.prompt[0], stop, config, drafter, most)]


@pytest.mark.parametrize("name", ["qwen3_next_mixed_4x", "qwen3_5"])
def test_any_pattern_of_accepted_and_rejected_tokens_says_the_same(name: str, tmp_path: Path) -> None:
    expected = read_golden(name).tokens[0].tolist()
    prompt = list(CASES[name].prompt[0])
    sampled = SamplingConfig(temperature=1.2, seed=4)
    with _model(name, tmp_path, 4, 6, 5) as model:
        by_config = [(SamplingConfig(), expected), (sampled, _said(model, name, sampled, None, 5))]

        @settings(deadline=None, max_examples=_EXAMPLES)
        @given(
            lengths=st.lists(st.integers(0, 4), min_size=1, max_size=5),
            errs_at=st.lists(st.integers(0, 4), min_size=1, max_size=5),
            which=st.integers(0, 1),
        )
        def check(lengths: list[int], errs_at: list[int], which: int) -> None:
            config, tokens = by_config[which]
            assert _said(model, name, config, _Drawn([*prompt, *tokens], lengths, errs_at), 5) == tokens

        check()


# Without RoPE that depends on the length, for which speculation is refused.
_SPECULATED = {name: case for name, case in SAMPLE.items() if not config_of(case).rope.scaling.depends_on_length}


@pytest.mark.parametrize("case", _SPECULATED.values(), ids=_SPECULATED)
def test_drafts_change_no_token_of_any_family(case: GoldenCase, tmp_path: Path) -> None:
    prompt, expected = list(case.prompt[0]), read_golden(case.name).tokens[0].tolist()
    drafter = _Drawn([*prompt, *expected], (3, 1, 4), (1, 4, 0, 2))
    with _model(case.name, tmp_path, len(prompt), 6, 5) as model:
        assert _said(model, case.name, SamplingConfig(), drafter, 5) == expected


def test_a_model_with_states_drafts(tmp_path: Path) -> None:
    name = "qwen3_next_mixed_4x"
    for folder in ("target", "draft"):
        (tmp_path / folder).mkdir()
    with (
        _model(name, tmp_path / "target", 4, 6, 4) as model,
        _model(name, tmp_path / "draft", 3, 2, 4) as draft,
    ):
        said = _said(model, name, SamplingConfig(), DraftRows(lambda: OneRow(draft), states=True)(0, True), 4)
    assert said == read_golden(name).tokens[0].tolist()
