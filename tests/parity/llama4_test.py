"""Llama 4 out of a checkpoint with a vision tower, and with caches of the chunk only."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy

from lang_core import EagerExecutionContext
from tests.goldens.cases import CASES
from tests.goldens.golden_files import read_golden
from tests.goldens.weights import stored_weights
from tests.parity._golden_models import empty_caches, opened, relative_error, scalar
from transformer_core.checkpoints import SafetensorsCheckpoint, audit
from transformer_core.models import entry_points, load_model, stored_specs, unused_keys, weights_of

_CASE = CASES["llama4"]
_TOLERANCE = 2e-4


def test_the_text_of_a_checkpoint_with_a_vision_tower(tmp_path: Path) -> None:
    tensors = {f"language_model.{key}": array for key, array in stored_weights(_CASE).items()}
    tensors["vision_model.class_embedding"] = np.zeros(3, np.float32)
    tensors["multi_modal_projector.linear_1.weight"] = np.zeros((3, 2), np.float32)
    safetensors.numpy.save_file(tensors, tmp_path / "model.safetensors", metadata={"format": "pt"})
    text = {name: value for name, value in _CASE.config.items() if name != "architectures"}
    whole = {"architectures": ["Llama4ForConditionalGeneration"], "model_type": "llama4", "text_config": text}
    (tmp_path / "config.json").write_text(json.dumps(whole))
    model: Any = load_model(tmp_path)
    prompt: Any = np.array(_CASE.prompt, np.int32)
    with SafetensorsCheckpoint(tmp_path) as checkpoint:
        report = audit(checkpoint, stored_specs(model, checkpoint), ignorable=unused_keys(model, checkpoint))
        assert sorted(report.ignored) == [key for key in sorted(tensors) if not key.startswith("language_model.")]
        logits = model(EagerExecutionContext(weights_of(model, checkpoint)), prompt)
    assert relative_error(logits, read_golden("llama4").prompt_logits) < _TOLERANCE


def test_caches_of_a_chunk_hold_what_is_needed(tmp_path: Path) -> None:
    golden = read_golden("llama4")
    length = golden.prompt.shape[1]
    with opened(_CASE, tmp_path) as (model, ctx):
        sizes: Any = {"sequence": 3, "max_sequence": length + _CASE.steps, "window_caches": "ring"}
        prefill, decode = entry_points(model, names=("prefill", "decode"), **sizes)
        caches: list[Any] = empty_caches(prefill)
        logits: Any = None
        tokens: Any = None
        assert min(cache.shape[2] for cache in caches) < length
        for start in range(0, length, 3):
            piece: Any = np.zeros((1, 3), np.int32)
            count = min(3, length - start)
            piece[:, :count] = golden.prompt[:, start : start + count]
            places: list[Any] = [scalar(start), scalar(count - 1)]
            results = dict(prefill(ctx, piece, *places, *caches))
            logits, tokens = results.pop("logits").numpy(), results.pop("next_ids").numpy()
            caches = list(results.values())
        for step in range(_CASE.steps):
            assert relative_error(logits, golden.logits[:, step]) < _TOLERANCE, f"step {step}"
            given: Any = tokens[:, None]
            position: Any = scalar(length + step)
            results = dict(decode(ctx, given, position, *caches))
            logits, tokens = results.pop("logits").numpy(), results.pop("next_ids").numpy()
            caches = list(results.values())
