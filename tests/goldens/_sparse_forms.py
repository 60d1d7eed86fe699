"""``config.json`` dictionaries of families with mixtures of experts, as transformers 5 writes them, and as published.

E is the number of experts, C how many a token chooses; see ``_config_forms`` for the other letters.
"""

from typing import Any

from tests.goldens._case_types import Config
from tests.goldens._config_forms import DEFAULT_ROPE, common5, qwen2_4_40


def glm4_moe5(*, K: int, H: int, E: int, C: int, inner: int, sizes: Config, **changes: Any) -> Config:
    """``Glm4MoeConfig`` of transformers 5."""
    return {
        **common5("glm4_moe", "Glm4MoeForCausalLM", K, sizes),
        "attention_bias": True,
        "first_k_dense_replace": 1,
        "head_dim": H,
        "moe_intermediate_size": inner,
        "n_group": 1,
        "n_routed_experts": E,
        "n_shared_experts": 1,
        "norm_topk_prob": True,
        "num_experts_per_tok": C,
        "num_nextn_predict_layers": 1,
        "output_router_logits": False,
        "rms_norm_eps": 1e-05,
        "rope_parameters": {**DEFAULT_ROPE, "partial_rotary_factor": 0.5},
        "routed_scaling_factor": 1.0,
        "topk_group": 1,
        "use_qk_norm": True,
        **changes,
    }


def glm4_moe_4_54(*, K: int, H: int, E: int, C: int, inner: int, sizes: Config, **changes: Any) -> Config:
    """zai-org/GLM-4.5-Air: ``partial_rotary_factor`` beside ``rope_theta``, several end tokens, no scoring function."""
    five = glm4_moe5(K=K, H=H, E=E, C=C, inner=inner, sizes=sizes)
    dropped = ("rope_parameters", "dtype", "output_router_logits", "bos_token_id")
    return {
        **{name: value for name, value in five.items() if name not in dropped},
        "eos_token_id": [2, 3, 5],
        "max_position_embeddings": 131072,
        "pad_token_id": 2,
        "partial_rotary_factor": 0.5,
        "rope_scaling": None,
        "rope_theta": 1000000,
        "torch_dtype": "bfloat16",
        "transformers_version": "4.54.0",
        "use_qk_norm": False,
        **changes,
    }


def qwen2_moe5(*, K: int, E: int, C: int, inner: int, shared: int, sizes: Config, **changes: Any) -> Config:
    """``Qwen2MoeConfig`` of transformers 5; ``shared`` is F of the shared expert."""
    return {
        **common5("qwen2_moe", "Qwen2MoeForCausalLM", K, sizes),
        "bos_token_id": None,
        "decoder_sparse_step": 1,
        "eos_token_id": None,
        "layer_types": ["full_attention"] * sizes["L"],
        "max_window_layers": 28,
        "mlp_only_layers": [],
        "moe_intermediate_size": inner,
        "norm_topk_prob": False,
        "num_experts": E,
        "num_experts_per_tok": C,
        "output_router_logits": False,
        "qkv_bias": True,
        "router_aux_loss_coef": 0.001,
        "shared_expert_intermediate_size": shared,
        "sliding_window": 0,
        "use_sliding_window": False,
        **changes,
    }


def qwen2_moe_4_39(*, K: int, E: int, C: int, inner: int, shared: int, sizes: Config, **changes: Any) -> Config:
    """Qwen/Qwen1.5-MoE-A2.7B: no ``mlp_only_layers``, no ``qkv_bias``."""
    return qwen2_4_40(
        K=K,
        sizes=sizes,
        **{
            "architectures": ["Qwen2MoeForCausalLM"],
            "decoder_sparse_step": 1,
            "max_window_layers": 21,
            "mlp_only_layers": [],
            "model_type": "qwen2_moe",
            "moe_intermediate_size": inner,
            "norm_topk_prob": False,
            "num_experts": E,
            "num_experts_per_tok": C,
            "output_router_logits": False,
            "router_aux_loss_coef": 0.001,
            "shared_expert_intermediate_size": shared,
            "transformers_version": "4.39.0.dev0",
            **changes,
        },
    )


def minimax_m2_5(*, K: int, H: int, E: int, C: int, sizes: Config, **changes: Any) -> Config:
    """``MiniMaxM2Config`` of transformers 5."""
    return {
        **common5("minimax_m2", "MiniMaxM2ForCausalLM", K, sizes),
        "head_dim": H,
        "num_experts_per_tok": C,
        "num_local_experts": E,
        "output_router_logits": False,
        "rope_parameters": {**DEFAULT_ROPE, "partial_rotary_factor": 0.5},
        "router_aux_loss_coef": 0.001,
        "router_jitter_noise": 0.0,
        **changes,
    }


def minimax_m2_4_46(*, K: int, H: int, E: int, C: int, sizes: Config, **changes: Any) -> Config:
    """MiniMaxAI/MiniMax-M2: ``rotary_dim``, without ``use_mtp``, which generation takes for its own."""
    five = minimax_m2_5(K=K, H=H, E=E, C=C, sizes=sizes)
    dropped = ("rope_parameters", "dtype", "bos_token_id", "eos_token_id", "pad_token_id")
    return {
        **{name: value for name, value in five.items() if name not in dropped},
        "attn_type_list": [1] * sizes["L"],
        "mtp_transformer_layers": 1,
        "num_mtp_modules": 3,
        "qk_norm_type": "per_layer",
        "rope_theta": 5000000,
        "rotary_dim": H // 2,
        "scoring_func": "sigmoid",
        "shared_intermediate_size": 0,
        "torch_dtype": "bfloat16",
        "transformers_version": "4.46.1",
        "use_qk_norm": True,
        "use_routing_bias": True,
        **changes,
    }


def ernie4_5_moe5(*, K: int, E: int, C: int, inner: int, sizes: Config, **changes: Any) -> Config:
    """``Ernie4_5_MoeConfig`` of transformers 5."""
    dropped = ("attention_dropout",)
    common = common5("ernie4_5_moe", "Ernie4_5_MoeForCausalLM", K, sizes)
    return {
        **{name: value for name, value in common.items() if name not in dropped},
        "moe_intermediate_size": inner,
        "moe_k": C,
        "moe_layer_end_index": sizes["L"] - 1,
        "moe_layer_interval": 1,
        "moe_layer_start_index": 1,
        "moe_norm_min": 1e-12,
        "moe_num_experts": E,
        "moe_num_shared_experts": 2,
        "output_router_logits": False,
        "pad_token_id": 0,
        "rms_norm_eps": 1e-05,
        "router_aux_loss_coef": 0.001,
        "tie_word_embeddings": True,
        "use_bias": False,
        **changes,
    }


def llama4_text5(*, K: int, H: int, E: int, C: int, dense: int, sizes: Config, **changes: Any) -> Config:
    """``Llama4TextConfig`` of transformers 5; ``dense`` is F of layers without experts."""
    return {
        **common5("llama4_text", "Llama4ForCausalLM", K, sizes),
        "attention_bias": False,
        "attention_chunk_size": 8192,
        "attn_scale": 0.1,
        "attn_temperature_tuning": True,
        "floor_scale": 8192,
        "head_dim": H,
        "interleave_moe_layer_step": 1,
        "intermediate_size_mlp": dense,
        "layer_types": ["chunked_attention"] * sizes["L"],
        "moe_layers": list(range(sizes["L"])),
        "no_rope_layer_interval": 4,
        "no_rope_layers": [1] * sizes["L"],
        "num_experts_per_tok": C,
        "num_local_experts": E,
        "output_router_logits": False,
        "rms_norm_eps": 1e-05,
        "rope_parameters": {**DEFAULT_ROPE, "rope_theta": 500000.0},
        "router_aux_loss_coef": 0.001,
        "router_jitter_noise": 0.0,
        "use_qk_norm": True,
        **changes,
    }


def phimoe5(*, K: int, E: int, sizes: Config, **changes: Any) -> Config:
    """``PhimoeConfig`` of transformers 5."""
    return {
        **common5("phimoe", "PhimoeForCausalLM", K, sizes),
        "attention_bias": True,
        "input_jitter_noise": 0.0,
        "lm_head_bias": True,
        "num_experts_per_tok": 2,
        "num_local_experts": E,
        "output_router_logits": False,
        "rms_norm_eps": 1e-05,
        "router_aux_loss_coef": 0.001,
        "router_jitter_noise": 0.01,
        "sliding_window": None,
        **changes,
    }


def phimoe_4_43(*, K: int, E: int, sizes: Config, **changes: Any) -> Config:
    """microsoft/Phi-3.5-MoE-instruct: the length before scaling beside ``rope_scaling``, and a window of 131072."""
    five = phimoe5(K=K, E=E, sizes=sizes)
    return {
        **{name: value for name, value in five.items() if name not in ("rope_parameters", "dtype")},
        "attention_dropout": 0.0,
        "auto_map": {"AutoModelForCausalLM": "modeling_phimoe.PhiMoEForCausalLM"},
        "eos_token_id": 2,
        "hidden_dropout": 0.0,
        "max_position_embeddings": 131072,
        "original_max_position_embeddings": 64,
        "rope_scaling": None,
        "rope_theta": 10000.0,
        "sliding_window": 131072,
        "torch_dtype": "bfloat16",
        "transformers_version": "4.43.3",
        **changes,
    }


def deepseek_v2_5(*, heads: Config, experts: Config, sizes: Config, **changes: Any) -> Config:
    """``DeepseekV2Config`` of transformers 5; arguments as of ``deepseek_v3_5``."""
    return {
        **common5("deepseek_v2", "DeepseekV2ForCausalLM", sizes["N"], sizes),
        "attention_bias": False,
        "first_k_dense_replace": 1,
        "head_dim": heads["qk_rope_head_dim"],
        "mlp_bias": False,
        "n_shared_experts": 2,
        "norm_topk_prob": False,
        "output_router_logits": False,
        "pretraining_tp": 1,
        "qk_head_dim": heads["qk_nope_head_dim"] + heads["qk_rope_head_dim"],
        "routed_scaling_factor": 1.0,
        "topk_method": "greedy",
        **heads,
        **experts,
        **changes,
    }
