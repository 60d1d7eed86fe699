"""Nemotron-H as llama.cpp's converter changes it: names, shapes, rows of queries and keys, sizes per layer."""

from collections.abc import Iterator, Mapping

import numpy as np
from gguf import GGUFWriter

from tests.goldens._case_types import Config
from tests.goldens.gguf_states import add_ssm, state_tensors

_LETTERS = {"M": "linear_attention", "*": "full_attention", "-": "mlp", "E": "moe"}


def nemotron_h_name(config: Config) -> str:
    """Returns ``general.architecture``, which says whether there are experts."""
    return "nemotron_h_moe" if "num_experts_per_tok" in config else "nemotron_h"


def nemotron_h_tensors(weights: Mapping[str, np.ndarray], config: Config) -> Iterator[tuple[str, np.ndarray]]:
    """Yields the tensors under the converter's own names."""
    heads = {"q_proj": config["num_attention_heads"], "k_proj": config["num_key_value_heads"]}
    for stored, array in state_tensors(weights, config):
        key = stored.replace("e_score_correction_bias", "e_score_correction.bias").replace("dt_proj.bias", "dt.bias")
        if ".mixer.experts." in key:
            key = key.replace("backbone", "model").replace("mixer", "mlp")
        count = next((count for part, count in heads.items() if f"mixer.{part}." in key), None)
        yield key, array if count is None else _permuted(array, count)


def _permuted(array: np.ndarray, heads: int) -> np.ndarray:
    halves = array.reshape(heads, 2, array.shape[0] // heads // 2, *array.shape[1:])
    return np.ascontiguousarray(halves.swapaxes(1, 2).reshape(array.shape))


def kinds_of(config: Config) -> list[str]:
    """Returns the kind of each layer."""
    if "hybrid_override_pattern" in config:
        return [_LETTERS[letter] for letter in config["hybrid_override_pattern"]]
    return config["layers_block_type"]


def add_nemotron_h_fields(writer: GGUFWriter, config: Config, name: str) -> None:
    """Writes all fields."""
    kinds = kinds_of(config)
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(len(kinds))
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv([config["num_key_value_heads"] if kind == "full_attention" else 0 for kind in kinds])
    writer.add_key_length(config["head_dim"])
    writer.add_value_length(config["head_dim"])
    writer.add_layer_norm_eps(config["layer_norm_epsilon"])
    writer.add_layer_norm_rms_eps(config["layer_norm_epsilon"])
    sizes = ("mamba_num_heads", "mamba_head_dim", "n_groups", "ssm_state_size", "conv_kernel")
    add_ssm(writer, [config[size] for size in sizes])
    wide, inner = ("moe", "moe_intermediate_size") if name == "nemotron_h_moe" else ("mlp", "intermediate_size")
    writer.add_feed_forward_length([config[inner] if kind == wide else 0 for kind in kinds])
    if wide == "moe":
        _add_experts(writer, config)


def _add_experts(writer: GGUFWriter, config: Config) -> None:
    writer.add_expert_used_count(config["num_experts_per_tok"])
    writer.add_expert_feed_forward_length(config["moe_intermediate_size"])
    writer.add_expert_shared_feed_forward_length(config["moe_shared_expert_intermediate_size"])
    writer.add_expert_count(config["n_routed_experts"])
    writer.add_expert_shared_count(config["n_shared_experts"])
    writer.add_expert_weights_norm(config["norm_topk_prob"])
    writer.add_expert_weights_scale(config["routed_scaling_factor"])
    writer.add_expert_group_count(config["n_group"])
    writer.add_expert_group_used_count(config["topk_group"])
    if config["moe_latent_size"] is not None:
        writer.add_moe_latent_size(config["moe_latent_size"])
