"""Encoders of texts in GGUF files: their embeddings of sentences are transformers' and llama.cpp's."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
from gguf import PoolingType

from lang_core import ConfigError, EagerExecutionContext
from tests.goldens.encoders.cases import ENCODER_CASES, EncoderCase
from tests.goldens.encoders.files import read_encoder_golden, write_encoder_checkpoint
from tests.goldens.encoders.gguf_encoders import GGUF_ENCODERS, GGUF_RERANKERS, OTHER_FILES, write_encoder_gguf
from tests.goldens.golden_files import DATA
from tests.parity._golden_encoders import forward_of
from tests.parity._golden_models import relative_error
from transformer_core.checkpoints import SafetensorsCheckpoint, audit
from transformer_core.models import Model, load_model, stored_specs, tied_keys, unused_keys, weights_of
from transformer_core.models.gguf import GgufModel

_LLAMA_CPP: dict[str, Any] = json.loads((DATA / "llama_cpp.json").read_text())


def _embedded(case: EncoderCase, directory: Path, name: str = "", /, **changes: np.ndarray) -> np.ndarray:
    """The sentence embeddings of the case's inputs, or of others, by the model in its GGUF file."""
    return _results(case, directory, name, **changes)["sentence_embedding"]


def _results(case: EncoderCase, directory: Path, name: str = "", /, **changes: np.ndarray) -> dict[str, np.ndarray]:
    write_encoder_gguf(directory / "model.gguf", case, name=name)
    with GgufModel(directory / "model.gguf") as file:
        file.write_description(directory)
        model: Model[Any] = load_model(directory)
        specs, tied = stored_specs(model, file), tied_keys(model, file)
        report = audit(file, specs, tied=tied, ignorable=unused_keys(model, file))
        assert set(report.used) | set(report.ignored) == set(file.keys())
        ctx, inputs = (
            EagerExecutionContext(weights_of(model, file)),
            {**read_encoder_golden(case.name).inputs, **changes},
        )
        results = forward_of(model, inputs)(ctx, *map(ctx.constant, inputs.values()))
        return {key: result.numpy() for key, result in results.items()}


@pytest.mark.parametrize("name", GGUF_ENCODERS)
def test_embeddings_are_transformers_and_llama_cpps(name: str, tmp_path: Path) -> None:
    """llama.cpp has tokens of the first type only, takes gelu by its tanh, and some products in f16."""
    golden, case = read_encoder_golden(name), ENCODER_CASES[name]
    assert relative_error(_embedded(case, tmp_path), golden.outputs["sentence_embedding"]) < 2e-4
    types = {key: np.zeros_like(array) for key, array in golden.inputs.items() if key == "token_type_ids"}
    assert np.abs(_embedded(case, tmp_path, **types) - np.array(_LLAMA_CPP["embeddings"][name])).max() < 1e-2


@pytest.mark.parametrize("file", OTHER_FILES)
def test_a_file_of_a_model_that_transformers_has_under_another_name(file: str, tmp_path: Path) -> None:
    architecture, name = OTHER_FILES[file]
    embedded = _embedded(ENCODER_CASES[name], tmp_path, architecture)
    assert relative_error(embedded, read_encoder_golden(name).outputs["sentence_embedding"]) < 2e-4
    assert np.abs(embedded - np.array(_LLAMA_CPP["embeddings"][file])).max() < 1e-2


def test_an_embedding_gemma_has_two_matrices_after_the_mean(tmp_path: Path) -> None:
    """Held to the checkpoint, whose first matrix has in the golden a bias and a tanh, which no file can say."""
    golden, (stored, file) = ENCODER_CASES["gemma3_sentence"], (tmp_path / "stored", tmp_path / "file")
    case = dataclasses.replace(golden, config={**golden.config, "query_pre_attn_scalar": golden.config["head_dim"]})
    stored.mkdir()
    file.mkdir()
    write_encoder_checkpoint(stored, case)
    settings = json.loads((stored / "2_Dense" / "config.json").read_text())
    plain = {**settings, "bias": False, "activation_function": "torch.nn.modules.linear.Identity"}
    (stored / "2_Dense" / "config.json").write_text(json.dumps(plain))
    weights = safetensors.numpy.load_file(stored / "2_Dense" / "model.safetensors")
    safetensors.numpy.save_file({"linear.weight": weights["linear.weight"]}, stored / "2_Dense" / "model.safetensors")
    model, inputs = load_model(stored), read_encoder_golden(case.name).inputs
    with SafetensorsCheckpoint(stored) as checkpoint:
        ctx = EagerExecutionContext(weights_of(model, checkpoint))
        expected = forward_of(model, inputs)(ctx, *map(ctx.constant, inputs.values()))["sentence_embedding"].numpy()
    assert relative_error(_embedded(case, file), expected) < 1e-5


@pytest.mark.parametrize("name", GGUF_RERANKERS)
def test_scores_are_transformers_and_llama_cpps(name: str, tmp_path: Path) -> None:
    """llama.cpp gives the probabilities of a Qwen3's "yes" and "no", whose logits differ by the score."""
    golden, case = read_encoder_golden(name), ENCODER_CASES[name]
    logits = _results(case, tmp_path)["logits"]
    assert relative_error(logits, golden.outputs["logits"]) < 2e-4
    theirs = np.array(_LLAMA_CPP["ranks"][name])
    ours = logits if not case.score else np.concatenate([1 / (1 + np.exp(-logits)), 1 / (1 + np.exp(logits))], 1)
    assert np.abs(ours - theirs).max() < 1e-2 * max(1.0, np.abs(theirs).max())


def test_a_classifier_of_a_bert_lacks_its_pooler(tmp_path: Path) -> None:
    write_encoder_gguf(tmp_path / "model.gguf", ENCODER_CASES["bert_classifier"])
    with pytest.raises(ConfigError, match=r"needs cls.weight, which converters leave out of a BERT's: take its safet"):
        GgufModel(tmp_path / "model.gguf")


@pytest.mark.parametrize("pooling", [PoolingType.NONE, PoolingType.RANK])
def test_an_encoder_without_pooling_is_refused(pooling: PoolingType, tmp_path: Path) -> None:
    write_encoder_gguf(tmp_path / "model.gguf", ENCODER_CASES["bert_sentence"], pooling=pooling)
    with pytest.raises(ConfigError, match=r"'pooling_type': expected 1 \(mean\), 2 \(first token\) or 3"):
        GgufModel(tmp_path / "model.gguf")
