"""Files for the peer are the checkpoint's model, read back by the gguf package and by our reader."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf import GGMLQuantizationType, GGUFReader, quants

from lang_core import EagerExecutionContext, WeightSource, bf16
from tools.benching.jobs.gguf_file import run
from transformer_core.checkpoints import LlamaSizes, SafetensorsCheckpoint, write_random_llama
from transformer_core.models import DecoderLM, load_config, weights_of
from transformer_core.models.gguf import GgufModel

SIZES = LlamaSizes(layers=2, hidden=96, intermediate=160, heads=6, kv_heads=2, vocabulary=70, positions=24)


def logits(model: DecoderLM, weights: WeightSource) -> np.ndarray:
    prompt: Any = np.array([[3, 69, 0, 17, 5]], np.int32)
    return model(EagerExecutionContext(weights), prompt).numpy()


def written(tmp_path: Path, kind: str) -> tuple[Path, int]:
    write_random_llama(tmp_path / "checkpoint", SIZES, bf16)
    file = tmp_path / "model.gguf"
    result = run({"checkpoint": str(tmp_path / "checkpoint"), "output": str(file), "type": kind})
    return file, result["step_bytes"]


@pytest.mark.parametrize("kind", ["BF16", "F32"])
def test_the_model_is_the_checkpoints(kind: str, tmp_path: Path) -> None:
    file, _ = written(tmp_path, kind)
    with GgufModel(file) as gguf, SafetensorsCheckpoint(tmp_path / "checkpoint") as checkpoint:
        ours, expected = DecoderLM(gguf.config()), DecoderLM(load_config(tmp_path / "checkpoint"))
        np.testing.assert_allclose(
            logits(ours, weights_of(ours, gguf)), logits(expected, weights_of(expected, checkpoint)), atol=1e-5
        )


@pytest.mark.parametrize("kind", ["F16", "Q8_0", "Q4_0"])
def test_matrices_are_of_the_type_and_vectors_are_not(kind: str, tmp_path: Path) -> None:
    file, step_bytes = written(tmp_path, kind)
    tensors = {tensor.name: tensor for tensor in GGUFReader(file).tensors}
    assert len(tensors) == 3 + 9 * SIZES.layers
    for name, tensor in tensors.items():
        wanted = GGMLQuantizationType.F32 if name.endswith("norm.weight") else GGMLQuantizationType[kind]
        assert tensor.tensor_type == wanted, name
    assert step_bytes == sum(t.n_bytes for name, t in tensors.items() if name != "token_embd.weight")
    with SafetensorsCheckpoint(tmp_path / "checkpoint") as checkpoint:
        stored = checkpoint.read("model.layers.1.mlp.down_proj.weight").astype(np.float32)
    packed = quants.quantize(stored, GGMLQuantizationType[kind])
    assert np.array_equal(tensors["blk.1.ffn_down.weight"].data.view(np.uint8), packed.view(np.uint8))
