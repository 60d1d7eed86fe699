"""RoPE that depends on the length of the sequence: bundles say what transformers says, in any pieces."""

import json
import os
from pathlib import Path

import numpy as np
import pytest

import tapeline
from generation import SamplingConfig, TokenStep
from generation.engine import AnswerSteps, EngineSettings, OneRow, StepEngine, TokenRequest
from lang_core import InputError
from run_iree import Session, available, target_of_device
from tapeline.bundle import Bundle
from tapeline.runners import BundleModel
from tests.goldens.length_cases import LENGTHS, MODELS, PROMPTS, STEPS, prompt_of
from tests.product._bundles import ON_FAST_DEVICES, export_case

_DEVICE = os.environ.get("TAPELINE_DEVICE", "local-task")
pytestmark = [
    ON_FAST_DEVICES,
    pytest.mark.skipif(not available(_DEVICE)[0], reason=available(_DEVICE)[1] or "the device is there"),
]
_TARGET = (target_of_device(_DEVICE),)
_TOLERANCE = 1e-4
_CAPACITY = max(PROMPTS) + STEPS
# Every prompt after a longer one and after a shorter one, in the same caches.
_ORDER = (15, 23, 7, 17, 16, 15, 23, 16, 17, 7, 15)


@pytest.fixture(scope="module", params=MODELS)
def exported(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    name = request.param
    options = {"sequence": 5, "max_sequence": _CAPACITY, "entry_points": ("prefill", "decode", "verify")}
    return name, export_case(
        MODELS[name], tmp_path_factory.mktemp(name), verify_tokens=4, verify="iree", target=_TARGET, **options
    )


def _golden(name: str, count: int, kind: str) -> np.ndarray:
    with np.load(LENGTHS) as goldens:
        return goldens[f"{name}_{count}_{kind}"]


def _engine(bundle: Bundle, session: Session) -> StepEngine:
    return StepEngine(OneRow(BundleModel(bundle, session)), EngineSettings(exact=False))


def _steps(engine: StepEngine, prompt: list[int]) -> list[TokenStep]:
    request = TokenRequest(prompt=prompt, sampling=SamplingConfig(), max_new_tokens=STEPS, predictions=True)
    return [step for _, step in AnswerSteps(engine, [request])]


def _check(name: str, count: int, logits: list[np.ndarray], tokens: list[int]) -> None:
    expected = _golden(name, count, "logits")
    error = np.abs(np.stack(logits) - expected).max() / np.abs(expected).max()
    assert error < _TOLERANCE, f"a prompt of {count} tokens: {error:.2g}"
    assert tokens == _golden(name, count, "tokens").tolist(), count


def test_tokens_and_logits_are_those_of_transformers(exported: tuple[str, Path]) -> None:
    name, path = exported
    bundle = Bundle(path)
    with bundle.session(_DEVICE) as session:
        engine = _engine(bundle, session)
        for count in _ORDER:
            steps = _steps(engine, prompt_of(name, count))
            _check(name, count, [step.logits for step in steps], [step.token_id for step in steps])


def test_prompts_that_begin_alike_have_keys_of_their_own_lengths(exported: tuple[str, Path]) -> None:
    """A row keeps keys of a prompt that was longer, shorter, or became longer by its answer."""
    name, path = exported
    bundle, whole = Bundle(path), prompt_of(name, 23)
    with bundle.session(_DEVICE) as session:
        engine = _engine(bundle, session)
        for count in (12, 23, 10, 14, 12, 21, 23, 11):
            again = [step.logits for step in _steps(engine, whole[:count])]
            fresh = [step.logits for step in _steps(_engine(bundle, session), whole[:count])]
            np.testing.assert_array_equal(again, fresh, err_msg=f"{count} tokens")


def test_scores_are_those_of_one_pass(exported: tuple[str, Path]) -> None:
    name, path = exported
    with tapeline.load(path, device=_DEVICE) as model:
        for count in PROMPTS:
            ids = [*prompt_of(name, count), *_golden(name, count, "tokens").tolist()]
            logits = _golden(name, count, "whole").astype(np.float64)
            logits -= logits.max(-1, keepdims=True)
            expected = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
            actual = model.score(token_ids=ids).log_probabilities
            np.testing.assert_allclose(actual, expected[np.arange(len(ids) - 1), ids[1:]], atol=1e-3)


def test_export_verifies_a_sequence_in_pieces(exported: tuple[str, Path]) -> None:
    _, path = exported
    rows = json.loads((path / "report.json").read_text())["verification"]
    pieces = [row for row in rows if row.get("entry_point") == "prefill in pieces"]
    assert [(row["device"], row["result"]) for row in pieces] == [(_DEVICE, "logits")]


def test_rows_that_had_a_rope_each_are_refused(tmp_path: Path) -> None:
    with pytest.raises(
        InputError, match=r"older spelling of slots=3\. RoPE of \w+ depends on the length .*: give slots=3"
    ):
        export_case(MODELS["longrope"], tmp_path, positions="per_row", batch=3, max_sequence=_CAPACITY, target=_TARGET)
