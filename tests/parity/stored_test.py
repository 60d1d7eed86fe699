"""Files that tie, name or configure tensors otherwise than transformers writes them, against transformers."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy

from lang_core import CheckpointError, EagerExecutionContext
from tests.goldens.cases import CASES
from tests.goldens.encoders.cases import ENCODER_CASES
from tests.goldens.encoders.files import read_encoder_golden, write_encoder_checkpoint
from tests.goldens.encoders.untied_cases import UNTIED, UNTIED_CASES, write_untied
from tests.goldens.stored_cases import STORED, STORED_CASES, write_stored
from tests.parity._golden_encoders import forward_of
from tests.parity._golden_models import relative_error
from transformer_core.checkpoints import SafetensorsCheckpoint, audit
from transformer_core.models import (
    DecoderLM,
    load_config,
    load_model,
    stored_specs,
    tied_keys,
    unused_keys,
    weights_of,
)

_TOLERANCE = 1e-5


@pytest.mark.parametrize("name", STORED_CASES)
def test_logits_are_those_of_transformers(name: str, tmp_path: Path) -> None:
    case = STORED_CASES[name]
    write_stored(tmp_path, case)
    prompt: Any = np.array(CASES[case.model].prompt, np.int32)
    with np.load(STORED) as goldens, SafetensorsCheckpoint(tmp_path) as checkpoint:
        model = load_model(tmp_path)
        specs, tied = stored_specs(model, checkpoint), tied_keys(model, checkpoint)
        audit(checkpoint, specs, tied=tied, ignorable=unused_keys(model, checkpoint))
        logits = model(EagerExecutionContext(weights_of(model, checkpoint)), prompt)
        assert relative_error(logits, goldens[name]) < _TOLERANCE


def test_a_head_with_the_values_of_the_embedding_stays_tied(tmp_path: Path) -> None:
    write_stored(tmp_path, STORED_CASES["tied_with_the_same_head"])
    model = load_model(tmp_path)
    assert isinstance(model, DecoderLM)
    assert model.config.tied


def test_no_weight_is_compared_if_none_is_read(tmp_path: Path) -> None:
    write_stored(tmp_path, STORED_CASES["tied_with_another_head"])
    model = load_model(tmp_path, weights=False)
    assert isinstance(model, DecoderLM)
    assert model.config.tied


def test_a_model_without_a_head_of_its_own_refuses_another_head(tmp_path: Path) -> None:
    write_stored(tmp_path, STORED_CASES["tied_with_another_head"])
    model = DecoderLM(load_config(tmp_path))
    expected = r"'lm_head\.weight' and 'model\.embed_tokens\.weight' have different values, and the model has one"
    with SafetensorsCheckpoint(tmp_path) as checkpoint, pytest.raises(CheckpointError, match=expected):
        weights_of(model, checkpoint)


def _t5_with(directory: Path, change: Callable[[dict[str, np.ndarray]], dict[str, np.ndarray]]) -> None:
    write_encoder_checkpoint(directory, ENCODER_CASES["t5"])
    path = directory / "model.safetensors"
    safetensors.numpy.save_file(change(safetensors.numpy.load_file(path)), path)


def test_an_embedding_of_an_encoder_decoder_is_read_under_any_of_its_names(tmp_path: Path) -> None:
    name = "shared.weight"
    other = "decoder.embed_tokens.weight"
    _t5_with(tmp_path, lambda tensors: {(other if key == name else key): value for key, value in tensors.items()})
    model = load_model(tmp_path)
    with SafetensorsCheckpoint(tmp_path) as checkpoint:
        audit(checkpoint, stored_specs(model, checkpoint), tied=tied_keys(model, checkpoint))
        stored = checkpoint.read(other)
        np.testing.assert_array_equal(weights_of(model, checkpoint).read(name), stored)


@pytest.mark.parametrize("name", UNTIED_CASES)
def test_tied_tensors_of_encoders_with_values_of_their_own(name: str, tmp_path: Path) -> None:
    case = UNTIED_CASES[name]
    write_untied(tmp_path, case)
    inputs = read_encoder_golden(case.model).inputs
    with np.load(UNTIED) as goldens, SafetensorsCheckpoint(tmp_path) as checkpoint:
        model = load_model(tmp_path)
        specs, tied = stored_specs(model, checkpoint), tied_keys(model, checkpoint)
        audit(checkpoint, specs, tied=tied, ignorable=unused_keys(model, checkpoint))
        ctx = EagerExecutionContext(weights_of(model, checkpoint))
        point = forward_of(model, inputs)
        arguments = [ctx.constant(np.asarray(inputs[a.name], a.spec.dtype.numpy)) for a in point.arguments]
        results = point(ctx, *arguments)
        result = results["logits" if "logits" in results else "last_hidden_state"]
        mask = inputs.get("attention_mask")
        seen = ... if mask is None or result.shape[1] != mask.shape[1] or case.model == "t5" else mask.astype(bool)
        assert relative_error(result.numpy()[seen], goldens[name][seen]) < _TOLERANCE


def test_an_encoder_of_another_directory_refuses_a_table_of_its_own(tmp_path: Path) -> None:
    write_encoder_checkpoint(tmp_path, ENCODER_CASES["t5"])
    model = load_model(tmp_path)
    _t5_with(tmp_path, lambda tensors: {**tensors, "encoder.embed_tokens.weight": tensors["shared.weight"] + 1})
    expected = r"'encoder\.embed_tokens\.weight' and 'shared\.weight' have different values"
    with SafetensorsCheckpoint(tmp_path) as checkpoint, pytest.raises(CheckpointError, match=expected):
        weights_of(model, checkpoint)


def test_a_head_that_is_missing_beside_keys_without_their_prefix_is_refused(tmp_path: Path) -> None:
    write_stored(tmp_path, STORED_CASES["llama_gqa_without_its_prefix"])
    path = tmp_path / "model.safetensors"
    tensors = safetensors.numpy.load_file(path)
    safetensors.numpy.save_file({key: value for key, value in tensors.items() if key != "lm_head.weight"}, path)
    model = load_model(tmp_path)
    with SafetensorsCheckpoint(tmp_path) as checkpoint, pytest.raises(CheckpointError, match=r"lm_head\.weight"):
        audit(checkpoint, stored_specs(model, checkpoint))


def test_layers_that_are_left_out_are_known_without_their_prefix(tmp_path: Path) -> None:
    write_stored(tmp_path, STORED_CASES["qwen3_moe_without_its_prefix"])
    model = load_model(tmp_path, num_layers=1)
    with SafetensorsCheckpoint(tmp_path) as checkpoint:
        specs, tied = stored_specs(model, checkpoint), tied_keys(model, checkpoint)
        report = audit(checkpoint, specs, tied=tied, ignorable=unused_keys(model, checkpoint))
    assert "layers.0.self_attn.q_proj.weight" in specs
    assert "layers.1.self_attn.q_proj.weight" in report.ignored
