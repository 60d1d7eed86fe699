"""Fields and tensors that llama.cpp's converter makes of DeepSeek-V2, DeepSeek-V3 and a gpt-oss."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from gguf import ExpertGatingFuncType, GGUFWriter, RopeScalingType

from tests.goldens._case_types import Config


def add_deepseek_fields(writer: GGUFWriter, config: Config, rope: Mapping[str, Any]) -> None:
    """Adds what ``DeepseekV2Model`` of the converter adds beside sizes; attention is that of one compressed head.

    Args:
        writer: takes the fields.
        config: the model's.
        rope: RoPE's fields in either form.
    """
    rank, rotated, plain = (config[name] for name in ("kv_lora_rank", "qk_rope_head_dim", "qk_nope_head_dim"))
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_head_count_kv(1)
    writer.add_key_length(rank + rotated)
    writer.add_value_length(rank)
    writer.add_key_length_mla(plain + rotated)
    writer.add_value_length_mla(config["v_head_dim"])
    writer.add_kv_lora_rank(rank)
    if config["q_lora_rank"] is not None:
        writer.add_q_lora_rank(config["q_lora_rank"])
    writer.add_leading_dense_block_count(config["first_k_dense_replace"])
    writer.add_expert_count(config["n_routed_experts"])
    writer.add_expert_used_count(config["num_experts_per_tok"])
    writer.add_expert_shared_count(config["n_shared_experts"])
    writer.add_expert_feed_forward_length(config["moe_intermediate_size"])
    writer.add_expert_weights_scale(config["routed_scaling_factor"])
    if config["norm_topk_prob"]:
        writer.add_expert_weights_norm(True)
    if config["model_type"] == "deepseek_v3":  # config.json of a V2 that transformers wrote does not say it
        writer.add_expert_gating_func(ExpertGatingFuncType.SIGMOID)
    writer.add_expert_group_count(config["n_group"])
    writer.add_expert_group_used_count(config["topk_group"])
    writer.add_rope_freq_base(rope["rope_theta"])
    writer.add_rope_dimension_count(rotated)
    if rope["rope_type"] == "yarn":
        writer.add_rope_scaling_type(RopeScalingType.YARN)
        writer.add_rope_scaling_factor(rope["factor"])
        writer.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
        writer.add_rope_scaling_yarn_beta_fast(rope["beta_fast"])
        writer.add_rope_scaling_yarn_beta_slow(rope["beta_slow"])
        writer.add_rope_scaling_yarn_log_mul(0.1 * rope["mscale_all_dim"])


def deepseek_tensors(weights: Mapping[str, np.ndarray], config: Config) -> Iterator[tuple[str, np.ndarray]]:
    """Yields the tensors under the converter's own names: keys and values of ``kv_b_proj`` apart, keys transposed."""
    for key, array in weights.items():
        if key.endswith("self_attn.kv_b_proj.weight"):
            heads = array.reshape(config["num_attention_heads"], -1, array.shape[1])
            plain = config["qk_nope_head_dim"]
            yield key.replace("kv_b_proj", "k_b_proj"), np.ascontiguousarray(heads[:, :plain].swapaxes(1, 2))
            yield key.replace("kv_b_proj", "v_b_proj"), np.ascontiguousarray(heads[:, plain:])
        else:
            yield key.replace("e_score_correction_bias", "e_score_correction.bias"), array


def gpt_oss_tensors(weights: Mapping[str, np.ndarray], config: Config) -> Iterator[tuple[str, np.ndarray]]:
    """Yields the tensors under the converter's own names: experts output-major, gate and up apart."""
    del config
    for key, array in weights.items():
        name, bias, _ = key.partition("_bias")
        outputs = array if bias or array.ndim < 3 else np.ascontiguousarray(array.swapaxes(1, 2))
        kind = "bias" if bias else "weight"
        if ".gate_up_proj" in key:
            for first, part in enumerate(("gate_proj", "up_proj")):
                yield f"{name.replace('gate_up_proj', part)}.{kind}", np.ascontiguousarray(outputs[:, first::2])
        elif ".experts.down_proj" in key:
            yield f"{name}.{kind}", outputs
        else:
            yield (f"{key}.weight" if key.endswith("sinks") else key), array
