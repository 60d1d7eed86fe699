"""Prompts that begin as earlier ones did, on a device: every bit of the answers is that of fresh caches."""

import os
from collections.abc import Sequence

import numpy as np
import pytest

from generation import SamplingConfig
from generation.engine import AnswerSteps, EngineSettings, OneRow, StepEngine, TokenRequest
from run_iree import Session, available, target_of_device
from run_iree._device_testing import sharing
from tapeline.bundle import Bundle
from tapeline.runners import BundleModel
from tests.goldens.cases import CASES
from tests.product._bundles import ON_FAST_DEVICES, export_case

_DEVICE = os.environ.get("TAPELINE_DEVICE", "local-task")
pytestmark = ON_FAST_DEVICES
# Whole caches; rings beside whole ones; states beside whole ones; frequencies that depend on the length.
_CASES = ["tinyllama_4x"]
if _DEVICE == "local-task":
    _CASES += ["gemma3", "llama_dynamic_long"]
    # Of states, prompt_cache_test keeps one too.
    if os.environ.get("TAPELINE_LONG"):
        _CASES += ["qwen3_next_mixed_4x", "mamba2_4x", "falcon_h1_normed_4x"]
_CHUNK, _CAPACITY, _NEW = 4, 31, 3
_RNG = np.random.default_rng(11)
_LONG = _RNG.integers(1, 60, _CAPACITY).tolist()
# How many tokens each prompt has of the first one, and how many more.
_PROMPTS = ((18, 0), (18, 6), (24, 5), (7, 2), (16, 0), (0, 3), (29, 0), (29, 0), (27, 0))


@pytest.fixture(scope="module", params=_CASES)
def bundle(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    present, why = available(_DEVICE)
    if not present:
        pytest.skip(why)
    folder, target = tmp_path_factory.mktemp("model"), target_of_device(_DEVICE)
    case = CASES[request.param]
    return Bundle(export_case(case, folder, sequence=_CHUNK, max_sequence=_CAPACITY, target=(target,)))


def _engine(bundle: Bundle, session: Session) -> StepEngine:
    row = OneRow(BundleModel(bundle, session))
    stores = 1 << 24 if row.recurrent else 0
    return StepEngine(row, EngineSettings(exact=False, store_bytes=stores, checkpoint_pieces=False))


def _logits(engine: StepEngine, prompt: Sequence[int]) -> tuple[np.ndarray, int]:
    """Returns the logits of an answer, and how many tokens of the prompt were reused."""
    request = TokenRequest(prompt=prompt, sampling=SamplingConfig(), max_new_tokens=_NEW, predictions=True)
    answers = AnswerSteps(engine, [request])
    return np.stack([step.logits for _, step in answers]), answers.reused


def _run(session: Session, bundle: Bundle) -> list[int]:
    """Every prompt with what is kept and without; how many tokens each found."""
    engine, reuses = _engine(bundle, session), []
    for shared, more in _PROMPTS:
        prompt = [*_LONG[:shared], *(61 + i for i in range(more))]
        again, reused = _logits(engine, prompt)
        reuses.append(reused)
        np.testing.assert_array_equal(again, _logits(_engine(bundle, session), prompt)[0])
    return reuses


def test_answers_are_those_of_fresh_caches_to_the_last_bit(bundle: Bundle) -> None:
    for device in sharing(_DEVICE):
        with bundle.session(device) as session:
            _assert_reused(bundle, _run(session, bundle))


def _assert_reused(bundle: Bundle, reuses: list[int]) -> None:
    names = [argument.name for argument in bundle.entry_point("prefill").arguments if argument.donated]
    shapes = {argument.spec.shape for argument in bundle.entry_point("prefill").arguments if argument.donated}
    if any(argument.name == "length" for argument in bundle.entry_point("prefill").arguments):
        assert reuses == [0, 0, 0, 0, 4, 0, 0, 28, 0]  # keys of prompts of other lengths have other frequencies
    elif any(name.endswith("_state") for name in names) or len(shapes) > 1:
        assert reuses == [0, 16, 16, 0, 0, 0, 16, 28, 16]  # what moves on can be had at one place of each prompt alone
    else:
        assert reuses == [0, 16, 16, 4, 4, 0, 0, 28, 24]
