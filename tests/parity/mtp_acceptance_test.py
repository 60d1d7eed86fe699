"""Multi-token prediction heads that agree with their models: several tokens per call, counted."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy

from generation import Prediction, PredictionHead, StopRule, rows_of
from generation.engine import SequenceModel
from generation.engine._sequence_testing import answers_of
from lang_core import EagerExecutionContext
from tests.goldens.mtp_cases import MTP_CASES, agreeing_weights, mtp_case, stored_key
from tests.goldens.samples import LONG
from tests.parity._golden_models import empty_caches
from transformer_core.checkpoints import SafetensorsCheckpoint
from transformer_core.models import entry_points, load_model, weights_of

_TAKES, _TOKENS, _ROOM = 4, 13, 24
_NAMES = MTP_CASES if LONG else ("qwen3_5", "deepseek_v3")
_POINTS = ("prefill", "decode", "verify", "draft")


class _Counted(SequenceModel):
    """A model with its head in the eager context, which counts the calls that feed tokens to it after the prompt."""

    def __init__(self, directory: Path, weights: SafetensorsCheckpoint, vocabulary: int) -> None:
        model = load_model(directory, drafts=True)
        self.recurrent, self.chunk, self.capacity, self.verify_tokens = True, 5, _ROOM, _TAKES
        sizes: Any = {"sequence": self.chunk, "max_sequence": _ROOM, "verify_tokens": _TAKES}
        points = entry_points(model, names=_POINTS, **sizes)
        self._points: dict[str, Any] = dict(zip(_POINTS, points, strict=True))
        self._ctx = EagerExecutionContext(weights_of(model, weights))
        self._caches: list[Any] = empty_caches(points[0])
        self._states = [a.name.endswith("_state") for a in points[0].arguments if a.alias_result]
        self._kept: list[Any] = []
        self._prefill = points[0]
        self.vocabulary, self.calls = vocabulary, 0

    def clear_states(self) -> None:
        self._caches = empty_caches(self._prefill)

    def prefill(
        self, token_ids: np.ndarray, position: int, last: int, embeddings: np.ndarray | None = None
    ) -> Prediction:
        return self._run("prefill", token_ids, position, last)[0]

    def decode(self, token_id: int, position: int) -> Prediction:
        self.calls += 1
        return self._run("decode", [[token_id]], position)[0]

    def verify(self, token_ids: np.ndarray, position: int, last: int) -> Any:
        self.calls += 1
        return self._run("verify", token_ids, position, last)

    def draft(self, token_id: int, position: int) -> Prediction:
        return self._run("draft", [[token_id]], position)[0]

    def keep_states(self) -> None:
        self._kept = list(self._caches)

    def restore_states(self) -> None:
        both = zip(self._states, self._kept, self._caches, strict=True)
        self._caches = [old if is_state else new for is_state, old, new in both]

    def _run(self, name: str, *given: Any) -> Any:
        values = [np.asarray(value, np.int32) for value in given]
        logits, *self._caches, _ = self._points[name](self._ctx, *values, *self._caches).values()
        return rows_of(logits.numpy().reshape(-1, logits.shape[-1]))


def _generated(directory: Path, prompt: list[int], vocabulary: int, *, drafts: bool) -> tuple[list[int], int, int]:
    """Tokens, the calls that they took, and how many guesses were accepted."""
    with SafetensorsCheckpoint(directory) as weights:
        model = _Counted(directory, weights, vocabulary)
        head = PredictionHead(model) if drafts else None
        answers = answers_of(model, prompt, StopRule(frozenset(), _TOKENS), drafter=head)
        tokens = [step.token_id for _, step in answers]
    return tokens, model.calls, answers.accepted


def _written(name: str, directory: Path, weights: dict[str, np.ndarray]) -> tuple[list[int], int]:
    case = mtp_case(name)
    (directory / "config.json").write_text(json.dumps(case.config))
    safetensors.numpy.save_file(weights, directory / "model.safetensors")
    return list(case.prompt[0][:6]), case.config["vocab_size"]


@pytest.mark.parametrize("name", _NAMES)
def test_a_head_that_agrees_gives_as_many_tokens_per_call_as_a_call_takes(name: str, tmp_path: Path) -> None:
    prompt, vocabulary = _written(name, tmp_path, agreeing_weights(mtp_case(name)))
    plain, alone, _ = _generated(tmp_path, prompt, vocabulary, drafts=False)
    tokens, calls, accepted = _generated(tmp_path, prompt, vocabulary, drafts=True)
    assert tokens == plain
    assert len(set(tokens)) > 1
    assert (alone, calls, accepted) == (_TOKENS - 1, (_TOKENS - 1) // _TAKES, (_TAKES - 1) * (_TOKENS - 1) // _TAKES)


@pytest.mark.parametrize("name", _NAMES)
def test_a_head_that_mostly_agrees_gives_more_than_one_token_per_call(name: str, tmp_path: Path) -> None:
    """The hidden state before the last token disturbs its guesses."""
    weights, case = agreeing_weights(mtp_case(name)), mtp_case(name)
    fc, size = stored_key("mtp.fc.weight", case.config), case.config["hidden_size"]
    weights[fc] = weights[fc].copy()
    weights[fc][:, size:] = np.eye(size) * 0.2
    prompt, vocabulary = _written(name, tmp_path, weights)
    plain, _, _ = _generated(tmp_path, prompt, vocabulary, drafts=False)
    tokens, calls, accepted = _generated(tmp_path, prompt, vocabulary, drafts=True)
    assert tokens == plain
    assert calls == _TOKENS - 1 - accepted < _TOKENS - 1
