"""Metadata of GGUF files with mixtures of experts as configurations."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf import GGUFWriter

from lang_core import ConfigError
from transformer_core.layers._rope_config import RopeKind
from transformer_core.models import DecoderConfig
from transformer_core.models.gguf import GgufModel

MOE: dict[str, Any] = {
    "attention.head_count": 4,
    "attention.head_count_kv": 2,
    "attention.layer_norm_rms_epsilon": 1e-5,
    "block_count": 5,
    "context_length": 64,
    "embedding_length": 32,
    "expert_count": 4,
    "expert_feed_forward_length": 24,
    "expert_used_count": 2,
    "feed_forward_length": 48,
    "interleave_moe_layer_step": 2,
}


def read(path: Path, architecture: str, *names: str, factors: Any = (), **changes: Any) -> DecoderConfig:
    """Writes a file with little but metadata, and reads its configuration; ``__`` stands for a dot."""
    writer = GGUFWriter(path / "some.gguf", architecture)
    for key, value in {**MOE, **{name.replace("__", "."): value for name, value in changes.items()}}.items():
        add: Any = writer.add_float32 if isinstance(value, float) else writer.add_uint32
        add(f"{architecture}.{key}", value)
    writer.add_tensor("token_embd.weight", np.zeros((7, 32), np.float32))
    for name in ("blk.4.attn_norm.weight", *names):
        writer.add_tensor(name, np.zeros((2, 2), np.float32))
    for name in ("rope_factors_long.weight", "rope_factors_short.weight") if factors else ():
        writer.add_tensor(name, np.array(factors, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with GgufModel(path / "some.gguf") as file:
        return file.config()


def test_layers_of_glm_that_predict_further_tokens_are_not_run(tmp_path: Path) -> None:
    config = read(tmp_path, "glm4moe", nextn_predict_layers=2)
    assert (config.layers, config.extra_layers, config.qk_norm) == (3, 2, False)
    assert read(tmp_path, "glm4moe", "blk.0.attn_q_norm.weight").qk_norm


def test_what_llama_cpp_has_fixed_for_llama4(tmp_path: Path) -> None:
    config = read(tmp_path, "llama4")
    assert (config.windows, config.intermediate, config.qk_norm) == ((8192, 8192, 8192, None, 8192), 48, True)
    assert config.experts is not None
    assert (config.experts.layers, config.experts.inner) == ((False, True, False, True, False), 24)
    whole = read(tmp_path, "llama4", attention__sliding_window=0)
    assert (whole.windows, set(whole.rope_kinds)) == ((None,) * 5, {RopeKind.MODEL})
    assert not read(tmp_path, "llama4", expert_count=128).qk_norm


def test_long_ropes_of_phimoe_have_the_files_scale(tmp_path: Path) -> None:
    rope = read(tmp_path, "phimoe", factors=[1.0, 1.1, 1.2, 1.3], rope__scaling__attn_factor=1.25).rope
    assert (rope.attention_factor, rope.scaling.depends_on_length) == (1.25, False)


@pytest.mark.parametrize(
    ("architecture", "changes", "message"),
    [
        ("glm4moe", {"nextn_predict_layers": 5}, r"'nextn_predict_layers': expected less than block_count \(5\)"),
        ("minimax-m2", {"expert_gating_func": 1}, "'expert_gating_func': expected 2, the logistic function"),
        ("ernie4_5-moe", {"expert_used_count": 5}, "routing: expected 1 to 4 experts per token; found 5"),
        ("phimoe", {"expert_used_count": 3}, "'num_experts_per_tok': expected 2, which the router always chooses"),
        ("qwen2moe", {"attention__sliding_window": 8}, "'attention.sliding_window': expected no such field, or 0"),
    ],
)
def test_refusals(architecture: str, changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=message):
        read(tmp_path, architecture, **changes)
