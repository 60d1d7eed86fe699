"""Encoder-decoders of texts step by step against transformers': the encoder once, then an answer."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lang_core import EagerExecutionContext
from tests.goldens.encoders.cases import ENCODER_CASES
from tests.goldens.encoders.files import read_encoder_golden
from tests.parity._golden_encoders import opened_encoder
from tests.parity._golden_models import relative_error
from transformer_core.models import Model, entry_points

TOLERANCE = 2e-4


def _run(point: Any, ctx: EagerExecutionContext, known: dict[str, Any]) -> dict[str, np.ndarray]:
    inputs = [ctx.constant(np.asarray(known[a.name], a.spec.dtype.numpy)) for a in point.arguments]
    return {name: tensor.numpy() for name, tensor in point(ctx, *inputs).items()}


_NAMES = (
    "t5",
    "t5_gated",
    "umt5",
    "bart",
    "led",
    "mbart",
    "marian",
    "m2m_100",
    "blenderbot_small",
    "t5gemma",
    "t5gemma_untied",
)


@pytest.mark.parametrize("name", _NAMES)
def test_greedy_steps(name: str, tmp_path: Path) -> None:
    case, golden = ENCODER_CASES[name], read_encoder_golden(name)
    with opened_encoder(case, tmp_path) as (model, ctx):
        points = _points(model, golden.inputs["token_ids"].shape[1], case.steps)
        known: dict[str, Any] = dict(golden.inputs)
        encoded = _run(points["encode"], ctx, known)
        real = golden.inputs["attention_mask"] != 0 if name == "led" else np.s_[:]  # Longformer's padding has zeros
        assert relative_error(encoded["last_hidden_state"][real], golden.outputs["encoded"][real]) < TOLERANCE
        known |= encoded
        known |= {a.name: np.zeros(a.spec.shape) for a in points["decode"].arguments if a.alias_result}
        known |= {"token_ids": np.full((2, 1), case.config["decoder_start_token_id"]), "position": 0, "last": 0}
        for step in range(case.steps):
            results = _run(points["prefill" if step == 0 else "decode"], ctx, known | {"position": step})
            assert relative_error(results["logits"], golden.outputs["step_logits"][:, step]) < TOLERANCE, f"step {step}"
            np.testing.assert_array_equal(results["next_ids"], golden.outputs["tokens"][:, step])
            known |= results | {"token_ids": results["next_ids"][:, None]}


def _points(model: Model[Any], sequence: int, capacity: int) -> dict[str, Any]:
    made = entry_points(model, batch=2, sequence=sequence, max_sequence=capacity)
    return {point.name: point for point in made}


def test_what_an_answer_keeps_of_the_source(tmp_path: Path) -> None:
    with opened_encoder(ENCODER_CASES["t5"], tmp_path) as (model, _):
        points = _points(model, 9, 12)
    kept = {a.name: a.spec.shape for a in points["decode"].arguments if not a.alias_result}
    crosses = {f"layers.{i}.cross_{part}": (2, 4, 9, 7) for i in range(3) for part in ("key", "value")}
    assert kept == {"token_ids": (2, 1), "position": (), "source_bias": (2, 9), **crosses}
    assert points["prefill"].arguments[0].spec.shape == (2, 1)
