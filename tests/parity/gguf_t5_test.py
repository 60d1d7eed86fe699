"""T5s in GGUF files: their answers are those of the checkpoint, and llama.cpp's."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lang_core import ConfigError, EagerExecutionContext
from tests.goldens.encoders._case_types import EncoderCase
from tests.goldens.encoders.files import read_encoder_golden, write_encoder_checkpoint
from tests.goldens.encoders.gguf_t5 import ANSWERED, GGUF_T5S, write_t5_gguf
from tests.goldens.golden_files import DATA
from tests.parity._golden_models import relative_error
from transformer_core.checkpoints import SafetensorsCheckpoint, audit
from transformer_core.models import Model, entry_points, load_model, stored_specs, tied_keys, unused_keys, weights_of
from transformer_core.models.gguf import GgufModel

_ANSWERS: dict[str, Any] = json.loads((DATA / "llama_cpp.json").read_text())["answers"]


def _results(model: Model[Any], weights: Any, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    batch, tokens = inputs["token_ids"].shape
    (point,) = entry_points(model, names=("forward",), batch=batch, sequence=tokens)
    ctx = EagerExecutionContext(weights_of(model, weights))
    values = {name: np.ascontiguousarray(value) for name, value in inputs.items()}
    return {key: value.numpy() for key, value in point(ctx, *map(ctx.constant, values.values())).items()}


def _of_file(directory: Path, case: EncoderCase, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    write_t5_gguf(directory / "model.gguf", case)
    with GgufModel(directory / "model.gguf") as file:
        file.write_description(directory)
        model = load_model(directory)
        specs, tied = stored_specs(model, file), tied_keys(model, file)
        audit(file, specs, tied=tied, ignorable=unused_keys(model, file))
        assert file.facts() == {"format": "gguf", "architecture": "t5" if case.steps else "t5encoder"}
        return _results(model, file, inputs)


@pytest.mark.parametrize("name", GGUF_T5S)
def test_results_are_the_checkpoints(name: str, tmp_path: Path) -> None:
    case, (stored, file) = GGUF_T5S[name], (tmp_path / "stored", tmp_path / "file")
    stored.mkdir()
    file.mkdir()
    write_encoder_checkpoint(stored, case)
    (stored / "modules.json").unlink(missing_ok=True)
    inputs = read_encoder_golden(name).inputs
    with SafetensorsCheckpoint(stored) as checkpoint:
        expected = _results(load_model(stored), checkpoint, inputs)
    actual = _of_file(file, case, inputs)
    assert set(actual) == set(expected)
    for key, result in actual.items():
        assert relative_error(result, expected[key]) < 1e-6


@pytest.mark.parametrize("name", ANSWERED)
def test_answers_are_llama_cpps(name: str, tmp_path: Path) -> None:
    """On its own tokens; llama.cpp does not divide the states of a tied head by the root of their size."""
    case, inputs = GGUF_T5S[name], read_encoder_golden(name).inputs
    steps = len(_ANSWERS[name][0])
    told = [[case.config["decoder_start_token_id"], *(top[0][0] for top in row[:-1])] for row in _ANSWERS[name]]
    width = max(inputs["token_ids"].shape[1], steps)
    padded = {key: _padded(np.array(value), width) for key, value in {**inputs, "decoder_token_ids": told}.items()}
    logits = _of_file(tmp_path, case, padded)["logits"].astype(np.float64)
    logits *= case.config["d_model"] ** 0.5 if case.config.get("tie_word_embeddings", True) else 1
    known = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    for row, tops in zip(known, _ANSWERS[name], strict=True):
        for place, top in enumerate(tops):
            for token, expected in top:
                assert abs(row[place, token] - expected) < 5e-2


def _padded(rows: np.ndarray, width: int) -> np.ndarray:
    return np.pad(rows, [(0, 0), (0, width - rows.shape[1])]).astype(np.int32)


def test_a_table_of_biases_in_each_layer_is_refused(tmp_path: Path) -> None:
    write_t5_gguf(tmp_path / "model.gguf", GGUF_T5S["t5"], more={"enc.blk.1.attn_rel_b.weight": np.zeros((8, 4), "f4")})
    with pytest.raises(ConfigError, match="share one table of biases by distance: a UMT5 has one in each layer"):
        GgufModel(tmp_path / "model.gguf")


def test_more_layers_than_are_stored(tmp_path: Path) -> None:
    write_t5_gguf(tmp_path / "model.gguf", GGUF_T5S["t5"], decoder_layers=700)
    with pytest.raises(ConfigError, match="'decoder_block_count': expected at most 2, the layers that the file has"):
        GgufModel(tmp_path / "model.gguf")
