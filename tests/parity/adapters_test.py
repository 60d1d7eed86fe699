"""Models with LoRA adapters against PEFT's merged models, from checkpoints and from GGUF files."""

from pathlib import Path

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
from transformer_core.models import DecoderLM, entry_points, load_config, weights_of
from transformer_core.models.gguf import GgufModel

# Sums of f32 in another order than torch's.
_TOLERANCE = 1e-5


def adapters_of(case: AdapterCase) -> list[Adapter]:
    return [Adapter(ADAPTERS / case.name / str(number), weight) for number, weight in enumerate(case.weights)]


def logits_of(model: DecoderLM, source: WeightSource, case: AdapterCase) -> np.ndarray:
    """The logits of the prompt, f32 [B, T, V]."""
    prompt = np.array(CASES[case.model].prompt, np.int32)
    (forward,) = entry_points(model, names=["forward"], batch=prompt.shape[0], sequence=prompt.shape[1])
    context = EagerExecutionContext(weights_of(model, source, adapters_of(case)))
    return forward(context, context.constant(prompt))["logits"].numpy()


@pytest.mark.parametrize("case", ADAPTER_CASES.values(), ids=ADAPTER_CASES)
def test_logits_are_those_of_the_merged_model(case: AdapterCase, tmp_path: Path) -> None:
    write_checkpoint(tmp_path, CASES[case.model])
    with SafetensorsCheckpoint(tmp_path) as checkpoint:
        logits = logits_of(DecoderLM(load_config(tmp_path)), checkpoint, case)
    assert relative_error(logits, np.load(ADAPTERS / case.name / "logits.npy")) < _TOLERANCE


@pytest.mark.parametrize("name", ["two_ranks", "dora", "embeddings_and_head"])
def test_logits_from_a_gguf_file_are_the_same(name: str, tmp_path: Path) -> None:
    case = ADAPTER_CASES[name]
    write_gguf(tmp_path / "model.gguf", CASES[case.model])
    with GgufModel(tmp_path / "model.gguf") as file:
        assert file.permuted  # rows of queries and keys are not in the order that adapters have
        logits = logits_of(DecoderLM(file.config()), file, case)
    assert relative_error(logits, np.load(ADAPTERS / name / "logits.npy")) < _TOLERANCE


def test_a_change_that_the_model_does_not_read_is_refused(tmp_path: Path) -> None:
    """A tied head may be stored a second time, and the model reads the embedding."""
    (tmp_path / "model").mkdir()
    write_checkpoint(tmp_path / "model", CASES["llama_tied"])
    path = tmp_path / "model" / "model.safetensors"
    tensors = safetensors.numpy.load_file(path)
    vocabulary, width = tensors["model.embed_tokens.weight"].shape
    safetensors.numpy.save_file({**tensors, "lm_head.weight": tensors["model.embed_tokens.weight"]}, path)
    (tmp_path / "adapter").mkdir()
    (tmp_path / "adapter" / "adapter_config.json").write_text('{"peft_type": "LORA", "r": 1, "lora_alpha": 1}')
    pair = {"lora_A": np.ones((1, width), np.float32), "lora_B": np.ones((vocabulary, 1), np.float32)}
    stored = {f"base_model.model.lm_head.{name}.weight": array for name, array in pair.items()}
    safetensors.numpy.save_file(stored, tmp_path / "adapter" / "adapter_model.safetensors")
    model = DecoderLM(load_config(tmp_path / "model"))
    expected = r"an adapter changes 'lm_head\.weight' in .*, and the model reads 'model\.embed_tokens\.weight' in its"
    with (
        SafetensorsCheckpoint(tmp_path / "model") as checkpoint,
        pytest.raises(CheckpointError, match=expected),
    ):
        weights_of(model, checkpoint, [Adapter(tmp_path / "adapter")])
