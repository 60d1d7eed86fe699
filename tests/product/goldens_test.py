"""A checkpoint, exported and run on a device, says what transformers says."""

import os
from pathlib import Path

import numpy as np
import pytest

from lang_core import InputError
from run_iree import available, target_of_device
from run_iree._device_testing import sharing
from tests.goldens.cases import CASES
from tests.goldens.golden_files import read_golden
from tests.product._bundles import export_case, greedy

_DEVICE = os.environ.get("TAPELINE_DEVICE", "local-task")
_TOLERANCE = 2e-4  # of the greatest logit
_HERE = [
    pytest.param(_DEVICE, marks=() if available(_DEVICE)[0] else pytest.mark.skip(reason=available(_DEVICE)[1])),
]

# Case, tokens per call of prefill, shards: prompts that are shorter, as long, and longer than a call takes, with the
# last piece full and not. Dynamic scalings take the prompt in one piece, as transformers does.
_FEW = [("llama_gqa", 4, 1)]
_MORE = [
    ("qwen3", 16, 3),
    ("qwen2_window_layers", 3, 1),
    ("mixtral_window_tied_4x", 4, 1),
    ("gemma2", 3, 1),
    ("gpt2_4x", 5, 1),
    ("gpt_oss", 5, 1),
    ("gemma3n", 4, 1),
]
# Held to transformers by ragged_test, prompt_memory_test and speculation_devices_test too: with TAPELINE_LONG=1.
if os.environ.get("TAPELINE_LONG"):
    _FEW += [("qwen3", 16, 3)]
    _MORE[:1] = [
        ("llama_dynamic_crossing_4x", 11, 1),
        ("qwen3_next", 34, 2),
        ("tinyllama_4x", 11, 2),
        ("mistral_window", 8, 1),
        ("deepseek_v3", 5, 2),
        ("gemma4", 4, 2),
        ("gemma4_moe", 3, 1),
        ("qwen3_next_mixed_4x", 4, 1),
        ("ministral3", 4, 1),
        ("hunyuan_v1_dense", 3, 1),
        ("cohere2", 4, 1),
        ("olmo3", 5, 1),
        ("nemotron", 3, 1),
        ("lfm2", 34, 1),
        ("lfm2_4x", 4, 2),
        ("deepseek_v2", 5, 1),
        ("glm4_moe", 5, 1),
        ("qwen2_moe", 4, 2),
        ("minimax_m2", 16, 1),
        ("ernie4_5_moe", 5, 1),
        ("llama4", 5, 1),
        ("phimoe", 4, 1),
        ("mamba2", 34, 1),
        ("mamba2_4x", 4, 2),
        ("lfm2_moe", 8, 1),
        ("granite_hybrid", 16, 1),
        ("falcon_h1", 16, 2),
        ("nemotron_h", 16, 1),
    ]


@pytest.fixture(params=_HERE)
def device(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.mark.parametrize(("name", "chunk", "shards"), _FEW + (_MORE if _DEVICE == "local-task" else []))
def test_a_bundle_generates_what_transformers_does(
    name: str, chunk: int, shards: int, device: str, tmp_path: Path
) -> None:
    case, golden = CASES[name], read_golden(name)
    prompt = list(case.prompt[0])
    capacity = len(prompt) + case.steps - 1  # not one position more than needed
    bundle = export_case(
        case,
        tmp_path,
        shards=shards,
        sequence=chunk,
        max_sequence=max(capacity, chunk),
        target=(target_of_device(device),),
    )
    for shared_device in sharing(device):
        tokens, logits = greedy(bundle, shared_device, prompt, case.steps)
        expected = golden.logits[0]
        assert tokens == golden.tokens[0].tolist()
        error = np.abs(logits - expected).max(axis=-1) / np.abs(expected).max(axis=-1)
        assert error.max() < _TOLERANCE, (shared_device, error)
    if capacity >= chunk:
        with pytest.raises(InputError, match=f"need {capacity + 1} positions, the bundle's caches hold {capacity}"):
            greedy(bundle, device, prompt, case.steps + 1)
