"""A checkpoint of every family, exported and run on XLA from its portable module, says what transformers says."""

from pathlib import Path

import numpy as np
import pytest

from generation import StopRule
from generation.engine._sequence_testing import steps_of
from tapeline.backends import Place, open_session
from tapeline.bundle import Bundle
from tapeline.runners import BundleModel
from tests.goldens.cases import CASES
from tests.goldens.device_cases import JAX_BY_DEFAULT, ON_JAX, DeviceCase
from tests.goldens.golden_files import read_golden
from tests.goldens.samples import LONG
from tests.product._bundles import export_case


@pytest.mark.parametrize("plan", ON_JAX if LONG else JAX_BY_DEFAULT, ids=lambda plan: plan.name)
def test_a_bundle_generates_what_transformers_does(plan: DeviceCase, tmp_path: Path) -> None:
    case, golden = CASES[plan.name], read_golden(plan.name)
    prompt = list(case.prompt[0])
    capacity = max(len(prompt) + case.steps - 1, plan.chunk)
    sizes = {"sequence": plan.chunk, "max_sequence": capacity, "entry_points": ("prefill", "decode")}
    bundle = Bundle(export_case(case, tmp_path, target=(), **sizes))
    with open_session(bundle, Place("jax")) as session:
        model = BundleModel(bundle, session)
        steps = steps_of(model, prompt, StopRule(frozenset(), case.steps))
    tokens, logits = [step.token_id for step in steps], np.stack([step.logits for step in steps])
    expected = golden.logits[0]
    assert tokens == golden.tokens[0].tolist()
    assert (np.abs(logits - expected).max(-1) / np.abs(expected).max(-1)).max() < 2e-4
