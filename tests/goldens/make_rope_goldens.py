"""RoPE tables from transformers' rotary modules, for ``make_goldens.py``."""

import json
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import AutoConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding
from transformers.models.phi3.modeling_phi3 import Phi3RotaryEmbedding
from transformers.models.qwen2_vl.modeling_qwen2_vl import Qwen2VLRotaryEmbedding
from transformers.models.qwen3_vl.modeling_qwen3_vl import Qwen3VLTextRotaryEmbedding

from tests.goldens._case_types import RopeCase

_ROTARY = {
    "llama": LlamaRotaryEmbedding,
    "phi3": Phi3RotaryEmbedding,
    "qwen2_vl": Qwen2VLRotaryEmbedding,
    "qwen3_vl_text": Qwen3VLTextRotaryEmbedding,
}


def rope_arrays(cases: Iterable[RopeCase]) -> dict[str, np.ndarray]:
    """``<case>.inv_freq``, ``.attention_factor``, ``.positions``, ``.cos`` and ``.sin`` of every case."""
    arrays: dict[str, np.ndarray] = {}
    for case in cases:
        for field, value in _table(case).items():
            arrays[f"{case.name}.{field}"] = value
    return arrays


def _config(case: RopeCase) -> Any:
    with tempfile.TemporaryDirectory() as name:
        (Path(name) / "config.json").write_text(json.dumps(case.config))
        config = AutoConfig.from_pretrained(name)
    return config.get_text_config()


def _table(case: RopeCase) -> dict[str, np.ndarray]:
    config = _config(case)
    module = _ROTARY[case.config["model_type"]](config)
    positions = np.array(case.positions, np.int64)
    # [1, P], or [3, 1, P] where each section has its own positions.
    cos, sin = module(torch.zeros(1), torch.from_numpy(positions[..., None, :]))
    _check_against_init_function(case, config, module, int(positions.max()) + 1)
    return {
        "inv_freq": module.inv_freq.numpy(),
        "attention_factor": np.float64(module.attention_scaling),
        "positions": positions,
        "cos": cos[0].numpy(),
        "sin": sin[0].numpy(),
    }


def _check_against_init_function(case: RopeCase, config: Any, module: Any, length: int) -> None:
    """The module's table is the one ``ROPE_INIT_FUNCTIONS`` gives for this length."""
    kind = config.rope_parameters["rope_type"]
    if kind == "default":
        return
    inv_freq, attention_factor = ROPE_INIT_FUNCTIONS[kind](config, None, seq_len=torch.tensor(length))
    np.testing.assert_allclose(module.inv_freq.numpy(), inv_freq.numpy(), rtol=1e-6, err_msg=case.name)
    np.testing.assert_allclose(module.attention_scaling, attention_factor, rtol=0, err_msg=case.name)
