"""Golden cases that GGUF files can hold."""

import dataclasses
from typing import Any, Final

from tests.goldens._case_types import GoldenCase
from tests.goldens.cases import CASES

# Their files say all that config.json says: transformers' goldens hold.
AS_THEY_ARE: Final = (
    "llama_gqa", "llama_tied", "llama_wide_heads", "llama_biases", "llama_eps_theta", "llama_4x_first", "tinyllama_4x",
    "llama_linear", "llama_linear_4x", "llama_yarn", "llama_llama3", "llama_llama3_4x", "mistral_window", "mixtral",
    "qwen2_full_4x", "qwen2_yarn_4x", "qwen3", "qwen3_moe", "phi3_longrope_partial", "phi3_window_4x", "gpt2",
    "gpt2_4x", "granite", "olmo2", "gpt_neox", "gpt_neox_4x", "stablelm", "stablelm_parallel", "stablelm_normed",
    "deepseek_v3_plain_4x", "olmo3", "olmo3_4x", "ministral3", "exaone4", "exaone4_4x", "seed_oss",
    "ernie4_5", "ernie4_5_biases", "phi_4x",
    "starcoder2_plain", "nemotron_plain", "arcee", "minimax_m2", "minimax_m2_4x",
    "lfm2_4x", "granite_hybrid", "deepseek_v2", "glm4", "olmo", "apertus", "bloom", "falcon", "falcon_mqa_4x",
    "jamba", "gpt_bigcode", "jais2", "granitemoe", "granitemoeshared", "hunyuan_v1_moe", "exaone_moe", "dbrx",
)  # fmt: skip

# Falcon-H1 without its scales, which are in the weights of GGUF files.
UNSCALED: Final[dict[str, Any]] = {
    **dict.fromkeys(("attention_in_multiplier", "attention_out_multiplier", "embedding_multiplier"), 1.0),
    **dict.fromkeys(("key_multiplier", "lm_head_multiplier", "ssm_in_multiplier", "ssm_out_multiplier"), 1.0),
    "mlp_multipliers": [1.0] * 2,
    "ssm_multipliers": [1.0] * 5,
}

# Of others, what llama.cpp has fixed for all models of the architecture.
FIXED: Final[dict[str, dict[str, Any]]] = {
    "gemma_4x": {"tie_word_embeddings": True},
    "gemma2": {"query_pre_attn_scalar": 12, "tie_word_embeddings": True},
    "gemma3": {"query_pre_attn_scalar": 10},
    "deepseek_v3": {"rope_parameters": {**CASES["deepseek_v3"].config["rope_parameters"], "mscale": 0.7}},
    "deepseek_v2_lite": {"mlp_bias": False, "q_lora_rank": 14},
    "gpt_oss": {"swiglu_limit": 7.0},
    "gemma3n": {"vocab_size_per_layer_input": 89},
    "gemma4": {"vocab_size_per_layer_input": 89},
    "gemma4_moe": {
        "attention_bias": False,
        "rope_parameters": {
            "full_attention": {"partial_rotary_factor": 0.4, "rope_theta": 400.0, "rope_type": "proportional"},
            "sliding_attention": {"rope_theta": 50.0, "rope_type": "default"},
        },
    },
    "cohere": {"attention_bias": False},
    "cohere_normed": {"attention_bias": False},
    "cohere2": {
        "num_hidden_layers": 4,
        "layer_types": [*["sliding_attention"] * 3, "full_attention"],
        "tie_word_embeddings": True,
    },
    "starcoder2": {"sliding_window": None},
    "hunyuan_v1_dense": {
        "attention_bias": False,
        "rope_parameters": {"rope_theta": 700000.0, "rope_type": "default"},
    },
    "glm": {"hidden_size": 48},
    "glm4_moe": {"num_nextn_predict_layers": 0},
    "glm4_moe_4x": {"num_nextn_predict_layers": 0},
    "qwen2_moe_4x": {"tie_word_embeddings": False},
    "ernie4_5_moe": {"moe_layer_end_index": 3, "moe_norm_min": 1e-12},
    "llama4": {
        "attention_chunk_size": 8192,
        "floor_scale": 8192,
        "attn_scale": 0.1,
        "moe_layers": [1, 3],
        "interleave_moe_layer_step": 2,
        "no_rope_layers": [1, 1, 1, 0],
        "layer_types": [*["chunked_attention"] * 3, "full_attention"],
    },
    "phimoe": {"router_jitter_noise": 0.01},
    "olmoe": {"clip_qkv": None, "num_key_value_heads": 4},
    "dots1": {
        "attention_bias": False,
        "layer_types": ["full_attention"] * 3,
        "n_group": 1,
        "num_key_value_heads": 4,
        "sliding_window": None,
    },
    "lfm2": {"conv_bias": False},
    "lfm2_moe": {},
    "mamba2": {"use_bias": False},
    "mamba2_4x": {"use_conv_bias": True},
    "granite_hybrid_dense_4x": {
        **dict.fromkeys(("attention_bias", "mamba_proj_bias"), False),
        "intermediate_size": 44,
        "mamba_conv_bias": True,
    },
    "falcon_h1": UNSCALED,
    "falcon_h1_normed_4x": {
        **UNSCALED,
        **dict.fromkeys(("attention_bias", "mamba_proj_bias", "mlp_bias", "projectors_bias"), False),
        "mamba_norm_before_gate": False,
    },
    "nemotron_h": {
        "intermediate_size": 18,
        "layers_block_type": ["linear_attention", "moe", "full_attention", "moe"],
    },
    "nemotron_h_4x": {"use_bias": False, "use_conv_bias": True},
    "mamba": {"use_bias": False},
    "falcon_mamba": {"mixer_rms_eps": 1e-5},
    "mpt": {"attn_config": {"clip_qkv": 1.5}},
    "bitnet": {"hidden_act": "silu", "tie_word_embeddings": True},
    "minicpm3": {"scale_emb": 12, "scale_depth": 1.4, "dim_model_base": 256, "v_head_dim": 12},
    "mimo_v2_flash": {"attention_value_scale": None},
    "afmoe": {"num_hidden_layers": 4, "global_attn_every_n_layers": 4, "layer_types": None},
    "smollm3_4x": {"no_rope_layer_interval": 4, "no_rope_layers": [1, 1, 1]},
}

GGUF_CASES: Final[dict[str, GoldenCase]] = {
    name: dataclasses.replace(CASES[name], config={**CASES[name].config, **FIXED.get(name, {})})
    for name in (*AS_THEY_ARE, *FIXED)
}

# Further ones for llama.cpp: heads of a Gated DeltaNet are of one size there, and in Qwen3-Next experts are everywhere.
_HEADS: Final[dict[str, dict[str, int]]] = {
    name: {"linear_value_head_dim": CASES[name].config["linear_key_head_dim"]}
    for name in ("qwen3_next", "qwen3_next_mixed_4x", "qwen3_5", "qwen3_5_published", "qwen3_5_moe")
}
_SPARSE: Final = {
    "mlp_only_layers": [],
    "norm_topk_prob": True,
    "attention_bias": False,
    "num_experts_per_tok": 6,  # all of them: two are as good as alike to one token
}
HYBRID_CASES: Final[dict[str, GoldenCase]] = {
    name: dataclasses.replace(
        CASES[name],
        stored="f32",  # states carry roundings along
        prompt=(CASES[name].prompt[0][:9],),
        config={**CASES[name].config, **changes, **(_SPARSE if name == "qwen3_next_mixed_4x" else {})},
    )
    for name, changes in _HEADS.items()
}

# Cases that llama.cpp computes otherwise than the file says: it has no windows for these architectures (for EXAONE 4,
# where there are 64 layers), refuses biases in ERNIE and DeepSeeks without compressed queries of few layers, takes
# YaRN's betas from its command line, and the two best of a group for DeepSeek-V2's groups, where the model takes the
# best. Phi-3.5-MoE's experts it chooses as Mixtral's. Sizes of Gemma 3n are fixed there, and its standard deviations
# unbiased, which matters where F is as small as here. States carry the rounding to bf16 along, which in one file of
# Granite 4 is above the tolerance. Command R's norms of queries and keys it reads from models of 64 layers and more.
NOT_LLAMA_CPPS: Final = (
    "cohere_normed",
    "mistral_window",
    "phi3_window_4x",
    "llama_yarn",
    "exaone4_4x",
    "ernie4_5_biases",
    "starcoder2_plain",
    "olmo3",
    "granite_hybrid_dense_4x",
    "deepseek_v3_plain_4x",
    "deepseek_v2",
    "phimoe",
    "gemma3n",
)
