"""Whisper step by step against transformers': the encoder once, a prompt in pieces, one token at a time."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from compile_dag import evaluate, record
from lang_core import EagerExecutionContext, EntryPoint
from tests.goldens.encoders.cases import ENCODER_CASES
from tests.goldens.encoders.files import read_encoder_golden
from tests.parity._golden_encoders import opened_encoder
from tests.parity._golden_models import relative_error
from transformer_core.models import Model, entry_points

TOLERANCE = 2e-4
_CASE = ENCODER_CASES["whisper"]
_GOLDEN = read_encoder_golden("whisper")
_LENGTH = _GOLDEN.inputs["token_ids"].shape[1]
Arrays = dict[str, np.ndarray]


class Transcriber:
    """Runs entry points and carries their results along."""

    def __init__(self, points: dict[str, EntryPoint], ctx: EagerExecutionContext, *, recorded: bool) -> None:
        self.points, self.ctx, self.recorded = points, ctx, recorded
        self.state: Arrays = {
            a.name: np.zeros(a.spec.shape, a.spec.dtype.numpy) for a in points["decode"].arguments if a.alias_result
        }

    def run(self, name: str, **given: Any) -> Arrays:
        """Runs an entry point on the given tensors and the kept state."""
        point, known = self.points[name], {**self.state, **given}
        inputs = {a.name: self.ctx.constant(np.asarray(known[a.name], a.spec.dtype.numpy)) for a in point.arguments}
        if self.recorded:
            graph = record(point.fn, *[a.spec for a in point.arguments], input_names=list(inputs), name=name)
            results = evaluate(graph, self.ctx, inputs)
        else:
            results = point(self.ctx, *inputs.values())
        actual = {name: tensor.numpy() for name, tensor in results.items()}
        self.state |= {name: array for name, array in actual.items() if name.startswith("layers.")}
        return actual


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Model[Any], EagerExecutionContext]]:
    with opened_encoder(_CASE, tmp_path_factory.mktemp("whisper")) as (model, ctx):
        yield model, ctx


@pytest.mark.parametrize(("chunk", "recorded"), [(_LENGTH, False), (3, False), (_LENGTH + 2, False), (_LENGTH, True)])
def test_greedy_steps(opened: tuple[Model[Any], EagerExecutionContext], chunk: int, recorded: bool) -> None:
    model, ctx = opened
    prompt = _GOLDEN.inputs["token_ids"]
    made = entry_points(model, batch=2, sequence=chunk, max_sequence=_LENGTH + _CASE.steps)
    points = {point.name: point for point in made}
    whisper = Transcriber(points, ctx, recorded=recorded)
    encoded = whisper.run("encode", input_features=_GOLDEN.inputs["input_features"])
    assert relative_error(encoded["last_hidden_state"], _GOLDEN.outputs["encoded"]) < TOLERANCE
    results: dict[str, np.ndarray] = {}
    for begin in range(0, _LENGTH, chunk):
        piece = prompt[:, begin : begin + chunk]
        padded = np.pad(piece, ((0, 0), (0, chunk - piece.shape[1])))
        results = whisper.run("prefill", token_ids=padded, position=begin, last=piece.shape[1] - 1)
    for step in range(_CASE.steps):
        assert relative_error(results["logits"], _GOLDEN.outputs["step_logits"][:, step]) < TOLERANCE, f"step {step}"
        tokens = results["next_ids"]
        np.testing.assert_array_equal(tokens, _GOLDEN.outputs["tokens"][:, step], err_msg=f"step {step}")
        if step + 1 < _CASE.steps:
            results = whisper.run("decode", token_ids=tokens[:, None], position=_LENGTH + step)


def test_cross_keys_and_values_are_kept_and_caches_are_not(opened: tuple[Model[Any], EagerExecutionContext]) -> None:
    decode = entry_points(opened[0], names=["decode"], batch=2)[0]
    donated = {a.name: a.spec.shape for a in decode.arguments if a.alias_result}
    kept = {a.name: a.spec.shape for a in decode.arguments if ".cross_" in a.name}
    assert donated == {f"layers.{i}.{part}_cache": (2, 4, 21, 6) for i in range(3) for part in ("key", "value")}
    assert kept == {f"layers.{i}.cross_{part}": (2, 4, 13, 6) for i in range(3) for part in ("key", "value")}
