"""Models with LoRA adapters against PEFT's merged models, from checkpoints and from GGUF files."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy

from lang_core import CheckpointError, EagerExecutionContext, WeightSource
from tests.goldens.adapter_cases import ADAPTER_CASES, ADAPTERS, AdapterCase
from tests.goldens.cases import CASES
from tests.goldens.gguf_files import write_gguf
from tests.goldens.weights import write_checkpoint
from tests.parity._golden_models import relative_error
from transformer_core.checkpoints import Adapter, SafetensorsCheckpoint
from transformer_core.models import DecoderLM, Model, entry_points, load_config, load_model, weights_of
from transformer_core.models.gguf import GgufModel

# Sums of f32 in another order than torch's.
_TOLERANCE = 1e-5


def adapters_of(case: AdapterCase) -> list[Adapter]:
    return [Adapter(ADAPTERS / case.name / str(number), weight) for number, weight in enumerate(case.weights)]


def logits_of(model: Model[Any], source: WeightSource, case: AdapterCase) -> np.ndarray:
    """The logits of the prompt, f32 [B, T, V]."""
    prompt = np.array(CASES[case.model].prompt, np.int32)
    (forward,) = entry_points(model, names=["forward"], batch=prompt.shape[0], sequence=prompt.shape[1])
    context = EagerExecutionContext(weights_of(model, source, adapters_of(case)))
    return forward(context, context.constant(prompt))["logits"].numpy()


@pytest.mark.parametrize("case", ADAPTER_CASES.values(), ids=ADAPTER_CASES)
def test_logits_are_those_of_the_merged_model(case: AdapterCase, tmp_path: Path) -> None:
    write_checkpoint(tmp_path, CASES[case.model])
    with SafetensorsCheckpoint(tmp_path) as checkpoint:
        logits = logits_of(load_model(tmp_path, adapters=adapters_of(case)), checkpoint, case)
    assert relative_error(logits, np.load(ADAPTERS / case.name / "logits.npy")) < _TOLERANCE


@pytest.mark.parametrize("name", ["two_ranks", "dora", "embeddings_and_head"])
def test_logits_from_a_gguf_file_are_the_same(name: str, tmp_path: Path) -> None:
    case = ADAPTER_CASES[name]
    write_gguf(tmp_path / "model.gguf", CASES[case.model])
    with GgufModel(tmp_path / "model.gguf") as file:
        assert file.permuted  # rows of queries and keys are not in the order that adapters have
        logits = logits_of(DecoderLM(file.config()), file, case)
    assert relative_error(logits, np.load(ADAPTERS / name / "logits.npy")) < _TOLERANCE


def test_a_tied_model_takes_no_adapter_of_one_of_its_names(tmp_path: Path) -> None:
    """A model that is made without the adapter has one tensor for both, and an adapter changes one of them."""
    write_checkpoint(tmp_path, CASES["llama_tied"])
    model = DecoderLM(load_config(tmp_path))
    expected = r"tied_head_saved/0: changes a tensor that the model has tied .*load_model\(directory, adapters=\.\.\)"
    with SafetensorsCheckpoint(tmp_path) as checkpoint, pytest.raises(CheckpointError, match=expected):
        weights_of(model, checkpoint, adapters_of(ADAPTER_CASES["tied_head_saved"]))


def test_a_tied_model_from_a_gguf_file_gets_a_head_of_its_own(tmp_path: Path) -> None:
    case = ADAPTER_CASES["tied_embedding_saved"]
    write_gguf(tmp_path / "model.gguf", CASES[case.model])
    with GgufModel(tmp_path / "model.gguf") as file:
        (tmp_path / "config.json").write_text(json.dumps(CASES[case.model].config))
        logits = logits_of(load_model(tmp_path, adapters=adapters_of(case)), file, case)
    assert relative_error(logits, np.load(ADAPTERS / case.name / "logits.npy")) < _TOLERANCE


def test_nan_in_an_adapter_names_the_adapter(tmp_path: Path) -> None:
    case = ADAPTER_CASES["two_ranks"]
    (tmp_path / "model").mkdir()
    write_checkpoint(tmp_path / "model", CASES[case.model])
    shutil.copytree(ADAPTERS / case.name / "0", tmp_path / "adapter")
    path = tmp_path / "adapter" / "adapter_model.safetensors"
    tensors = safetensors.numpy.load_file(path)
    key = next(key for key in tensors if key.endswith("layers.1.self_attn.k_proj.lora_B.weight"))
    tensors[key][1, 0] = np.nan
    safetensors.numpy.save_file(tensors, path)
    with SafetensorsCheckpoint(tmp_path / "model") as checkpoint:
        weights = weights_of(
            load_model(tmp_path / "model"), checkpoint, [adapters_of(case)[1], Adapter(tmp_path / "adapter")]
        )
        damaged, other = (weights.origin(f"model.layers.{layer}.self_attn.k_proj.weight") for layer in (1, 0))
    assert damaged == f"adapter {tmp_path / 'adapter'} (NaN or infinity in {key})"
    assert other.endswith(f"model.safetensors with adapter {ADAPTERS / case.name / '1'}, {tmp_path / 'adapter'}")
