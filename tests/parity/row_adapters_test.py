"""LoRA adapters that are computed beside the weights, for each row its own, against PEFT's merged models."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lang_core import CheckpointError, EagerExecutionContext, InputError, WeightSource
from tests.goldens.adapter_cases import ADAPTER_CASES, ADAPTERS, AdapterCase
from tests.goldens.cases import CASES
from tests.goldens.gguf_files import write_gguf
from tests.goldens.weights import write_checkpoint
from tests.parity._golden_models import relative_error
from transformer_core import ADAPTER_TABLES
from transformer_core.checkpoints import (
    Adapter,
    AdapterPlace,
    SafetensorsCheckpoint,
    adapt,
    adapter_factors,
)
from transformer_core.flow import adapted_linears
from transformer_core.models import DecoderLM, Model, adapter_places, entry_points, load_model, weights_of
from transformer_core.models.gguf import GgufModel

_TOLERANCE = 1e-5  # sums of f32 in another order than torch's
_RANK = 9
_ALONE = [case for case in ADAPTER_CASES.values() if len(case.adapters) == 1]
_COMPUTED = ("columns", "fused")


def logits_of(model: Model[Any], source: WeightSource, case: AdapterCase) -> np.ndarray:
    """Returns the logits [B, T, V] of the prompts, all with the adapter."""
    prompt = np.array(CASES[case.model].prompt, np.int32)
    batch, tokens = prompt.shape
    points = entry_points(model, sequence=8, max_sequence=32, slots=2, verify_tokens=tokens, adapter_rank=_RANK)
    score = next(point for point in points if point.name == "adapted_verify_row")
    linears = adapted_linears(model)
    shapes = {f"{path}.weight": (one.outputs, one.inputs) for one in linears for path in one.layers}
    places = adapter_places(model, source, shapes)
    taken = {name: shape for name, shape in shapes.items() if places.get(name, AdapterPlace(name)) is not None}
    with Adapter(ADAPTERS / case.name / "0", case.weights[0]) as opened:
        factors = adapter_factors(
            opened, taken, {name: place for name, place in places.items() if place is not None}, _RANK
        )
    arrays = {one.name: np.zeros(one.spec.shape, one.spec.dtype.numpy) for one in score.arguments}
    arrays["last"] = np.asarray(tokens - 1, np.int32)
    for one in linears:
        for place, path in enumerate(one.layers):
            for side, name in ((0, f"{one.name}.a"), (1, f"{one.name}.b")):
                if f"{path}.weight" in factors:
                    matrix = (factors[f"{path}.weight"].right, factors[f"{path}.weight"].left)[side]
                    arrays[f"{ADAPTER_TABLES}0.{name}"][place, : matrix.shape[0], : matrix.shape[1]] = matrix
    context = EagerExecutionContext(weights_of(model, source))
    rows = []
    for row in range(batch):
        given = {**arrays, "token_ids": prompt[row : row + 1]}
        rows.append(score(context, *[context.constant(given[one.name]) for one in score.arguments]))
    return np.stack([results["logits"].numpy()[0] for results in rows])


def merged_logits(model: Model[Any], weights: WeightSource, case: AdapterCase) -> np.ndarray:
    """Returns the logits [B, T, V] of the prompts with the adapter merged into weights under the model's names."""
    prompt = np.array(CASES[case.model].prompt, np.int32)
    (forward,) = entry_points(model, names=["forward"], batch=prompt.shape[0], sequence=prompt.shape[1])
    with Adapter(ADAPTERS / case.name / "0", case.weights[0]) as adapter:
        context = EagerExecutionContext(adapt(weights, [adapter]))
        return forward(context, context.constant(prompt))["logits"].numpy()


def test_adapters_of_all_layers(tmp_path: Path) -> None:
    case = ADAPTER_CASES["two_ranks"]
    write_checkpoint(tmp_path, CASES[case.model])
    model = load_model(tmp_path)
    with SafetensorsCheckpoint(tmp_path) as checkpoint:
        logits = logits_of(model, checkpoint, case)
        expected = merged_logits(model, weights_of(model, checkpoint), case)
    assert relative_error(logits, expected) < _TOLERANCE


def test_adapters_go_with_a_gguf_file(tmp_path: Path) -> None:
    case = ADAPTER_CASES["two_ranks"]
    write_gguf(tmp_path / "model.gguf", CASES[case.model])
    with GgufModel(tmp_path / "model.gguf") as file:
        assert file.permuted  # rows of queries and keys are not in the order that adapters have
        model = DecoderLM(file.config())
        logits = logits_of(model, file, case)
        expected = merged_logits(model, weights_of(model, file), case)
    assert relative_error(logits, expected) < _TOLERANCE


@pytest.mark.parametrize("case", _ALONE, ids=[case.name for case in _ALONE])
def test_a_row_has_the_logits_of_the_merged_model_or_the_adapter_is_refused(case: AdapterCase, tmp_path: Path) -> None:
    write_checkpoint(tmp_path, CASES[case.model])
    model = load_model(tmp_path)
    with SafetensorsCheckpoint(tmp_path) as checkpoint:
        if case.name not in _COMPUTED:
            with pytest.raises((InputError, CheckpointError), match="export --adapter"):
                logits_of(model, checkpoint, case)
            return
        logits = logits_of(model, checkpoint, case)
        prompt = np.array(CASES[case.model].prompt, np.int32)
        (forward,) = entry_points(model, names=["forward"], batch=prompt.shape[0], sequence=prompt.shape[1])
        context = EagerExecutionContext(weights_of(model, checkpoint))
        alone = forward(context, context.constant(prompt))["logits"].numpy()
    expected = np.load(ADAPTERS / case.name / "logits.npy")
    assert relative_error(logits, expected) < _TOLERANCE
    assert relative_error(logits, alone) > 100 * _TOLERANCE
