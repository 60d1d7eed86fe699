"""Golden cases of every family in sizes of whole blocks, whose matrices can be packed."""

import dataclasses
from typing import Any, Final

import numpy as np

from tests.goldens.cases import CASES, GoldenCase
from tests.goldens.weights import random_weights

# The first case of each family, in sizes of whole blocks; decoders inside of other checkpoints are packed as alone.
FAMILIES: Final = {
    case.config["model_type"]: case for case in reversed(CASES.values()) if "text_config" not in case.config
}
_SIZES: Final[dict[str, Any]] = {
    "hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16,
    "moe_intermediate_size": 32, "shared_expert_intermediate_size": 32, "q_lora_rank": 32, "kv_lora_rank": 32,
    "v_head_dim": 16, "linear_key_head_dim": 16, "linear_value_head_dim": 16, "n_embd": 64, "n_inner": 96,
    "shared_intermediate_size": 64, "hidden_size_per_layer_input": 32, "laurel_rank": 32, "global_head_dim": 24,
    "per_layer_config": {"2": {"head_dim": 24}, "4": {"head_dim": 24}},
}  # fmt: skip
CARRYING: Final = (
    "mamba",
    "falcon_mamba",
    "jamba",
    "bamba",
    "qwen3_next",
    "qwen3_5_text",
    "qwen3_5_moe_text",
    "mamba2",
    "granitemoehybrid",
)
"""Families whose random states carry errors along and make them larger."""
_MAMBA: Final = {"mamba_n_heads": 8, "mamba_d_head": 16}
_OWN_SIZES: Final[dict[str, dict[str, Any]]] = {
    "mamba2": {"num_heads": 8},
    "mamba": {"time_step_rank": 32, "intermediate_size": 128},
    "falcon_mamba": {"time_step_rank": 32, "intermediate_size": 128},
    "jamba": {"mamba_dt_rank": 32},
    "bamba": {"mamba_n_heads": 8, "mamba_d_head": 16},
    "granitemoehybrid": {**_MAMBA, "shared_intermediate_size": 96},
    "falcon_h1": {**_MAMBA, "mamba_d_ssm": 128},
    "nemotron_h": {
        "mamba_num_heads": 4,
        "mamba_head_dim": 16,
        "moe_latent_size": 32,
        "moe_shared_expert_intermediate_size": 64,
    },
    "llama4_text": {"intermediate_size_mlp": 96},
    "electra": {"embedding_size": 32},
    "cohere2_moe": {"prefix_dense_intermediate_size": 96},
    "laguna": {"num_attention_heads_per_layer": [4, 8, 4]},
    "mimo_v2_flash": {"num_key_value_heads": 1, "head_dim": 12, "v_head_dim": 8},
    "lfm3": {"head_dim": 8},
    "roformer": {"embedding_size": 32},
    "rembert": {"input_embedding_size": 32, "output_embedding_size": 96},
    "ctrl": {"n_head": 4, "dff": 96},
    "dbrx": {
        "d_model": 64,
        "n_heads": 4,
        "attn_config": {"kv_n_heads": 2, "clip_qkv": 0.9, "rope_theta": 10000.0},
        "ffn_config": {"ffn_hidden_size": 32, "moe_num_experts": 5, "moe_top_k": 5},
    },
    "opt": {"ffn_dim": 96, "word_embed_proj_dim": 64},
    "xglm": {"d_model": 64, "ffn_dim": 96},
    "gpt_neo": {"num_heads": 4},
    **{name: {"n_head": 4} for name in ("bloom", "openai-gpt")},
    "falcon": {"ffn_hidden_size": 96, "num_kv_heads": 2},
    "mpt": {"d_model": 64, "n_heads": 4},
    # Here not all experts can be chosen: few of them, and each near the best.
    "phimoe": {"num_local_experts": 2, "router_jitter_noise": 1000.0},
}
# Which experts are chosen is no smooth function of anything: here all are, each with its weight.
ALL_EXPERTS: Final[dict[str, dict[str, int]]] = {
    "mixtral": {"num_experts_per_tok": 5},
    "qwen3_moe": {"num_experts_per_tok": 9},
    "qwen3_next": {"num_experts_per_tok": 5},
    "qwen3_5_moe_text": {"num_experts_per_tok": 5},
    "gpt_oss": {"num_experts_per_tok": 6},
    "lfm2_moe": {"num_experts_per_tok": 6},
    "granitemoehybrid": {"num_experts_per_tok": 5},
    "nemotron_h": {"num_experts_per_tok": 6, "topk_group": 3},
    "deepseek_v2": {"num_experts_per_tok": 8, "topk_group": 4},
    "deepseek_v3": {"num_experts_per_tok": 12, "topk_group": 4},
    "glm4_moe": {"num_experts_per_tok": 6, "topk_group": 2},
    "qwen2_moe": {"num_experts_per_tok": 7},
    "minimax_m2": {"num_experts_per_tok": 6},
    "ernie4_5_moe": {"moe_k": 6},
    "llama4_text": {"num_experts_per_tok": 5},
    "olmoe": {"num_experts_per_tok": 6},
    "dots1": {"num_experts_per_tok": 6, "topk_group": 2},
    "granitemoe": {"num_experts_per_tok": 5},
    "granitemoeshared": {"num_experts_per_tok": 5},
    "hunyuan_v1_moe": {"moe_topk": 5},
    "glm4_moe_lite": {"num_experts_per_tok": 6, "topk_group": 2},
    "solar_open": {"num_experts_per_tok": 6, "topk_group": 2},
    "flex_olmo": {"num_experts_per_tok": 6},
    "jamba": {"num_experts_per_tok": 4},
    "axk1": {"num_experts_per_tok": 8, "topk_group": 2},
    "aria_text": {"moe_topk": 5},
    "minimax": {"num_experts_per_tok": 6},
    "deepseek_v32": {"num_experts_per_tok": 6, "topk_group": 2, "index_topk": 100},
    "glm_moe_dsa": {"num_experts_per_tok": 6, "index_topk": 100},
    **{name: {"num_experts_per_tok": 6} for name in ("kolibri1", "flint", "cohere2_moe", "laguna", "mimo_v2_flash")},
    "exaone_moe": {"num_experts_per_tok": 6},
    "afmoe": {"num_experts_per_tok": 6},
    **{name: {"num_experts_per_tok": 5} for name in ("granitemoe_swa", "mellum", "hy_v3")},
}


def packed_case(name: str) -> GoldenCase:
    """Returns a family's case, by model type."""
    case = FAMILIES[name]
    sizes = {
        key: size for key, size in _SIZES.items() if case.config.get(key) is not None or key == "n_inner" in case.config
    }
    if name in (
        "deepseek_v2",
        "deepseek_v3",
        "glm4_moe_lite",
        "minicpm3",
        "youtu",
        "axk1",
        "deepseek_v32",
        "glm_moe_dsa",
    ):
        sizes["num_key_value_heads"] = sizes["num_attention_heads"]
    sizes |= _OWN_SIZES.get(name, {})
    return dataclasses.replace(
        case,
        config={**case.config, **sizes, **ALL_EXPERTS.get(name, {})},
        prompt=case.prompt[:1],
    )


def packed_case_weights(case: GoldenCase) -> dict[str, np.ndarray]:
    """Returns tensors of a checkpoint; matrices vary by 1 / inputs, those of goldens by up to four times that."""
    made = random_weights(case.config, case.seed)
    for key, array in made.items():
        if array.ndim == 2 and "embed" not in key and ".wte." not in key and ".wpe." not in key:
            made[key] = array / (array.std() * np.sqrt(array.shape[0 if ".c_" in key else 1], dtype=np.float32))
    return made
