"""``config.json`` dictionaries of families with mixtures of experts; see ``_config_forms`` for what the names mean.

E is the number of experts, C how many a token chooses.
"""

from typing import Any

from tests.goldens._case_types import Config
from tests.goldens._config_forms import DEFAULT_ROPE, common5, mistral_4_36, qwen2_4_40

_ROUTER_LOSS = {"output_router_logits": False, "router_aux_loss_coef": 0.001}


def mixtral5(*, K: int, E: int, C: int, sizes: Config, **changes: Any) -> Config:
    """``MixtralConfig`` of transformers 5."""
    return {
        **common5("mixtral", "MixtralForCausalLM", K, sizes),
        **_ROUTER_LOSS,
        "head_dim": None,
        "num_experts_per_tok": C,
        "num_local_experts": E,
        "router_jitter_noise": 0.0,
        "sliding_window": None,
        **changes,
    }


def mixtral_4_36(*, K: int, E: int, C: int, sizes: Config, **changes: Any) -> Config:
    """mistralai/Mixtral-8x7B-v0.1: ``rope_theta`` 1e6, window null."""
    return mistral_4_36(
        K=K,
        sizes=sizes,
        **{
            **_ROUTER_LOSS,
            "architectures": ["MixtralForCausalLM"],
            "model_type": "mixtral",
            "num_experts_per_tok": C,
            "num_local_experts": E,
            "router_aux_loss_coef": 0.02,
            **changes,
        },
    )


def qwen3_moe5(*, K: int, H: int, E: int, C: int, inner: int, sizes: Config, **changes: Any) -> Config:
    """``Qwen3MoeConfig`` of transformers 5; ``inner`` is F of one expert."""
    return {
        **common5("qwen3_moe", "Qwen3MoeForCausalLM", K, sizes),
        **_ROUTER_LOSS,
        "attention_bias": False,
        "decoder_sparse_step": 1,
        "head_dim": H,
        "mlp_only_layers": [],
        "moe_intermediate_size": inner,
        "norm_topk_prob": True,
        "num_experts_per_tok": C,
        "num_local_experts": E,
        "sliding_window": None,
        "use_sliding_window": False,
        **changes,
    }


def qwen3_moe_4_51(*, K: int, H: int, E: int, C: int, inner: int, sizes: Config, **changes: Any) -> Config:
    """Qwen/Qwen3-30B-A3B: ``num_experts``, ``rope_scaling`` null."""
    return qwen2_4_40(
        K=K,
        sizes=sizes,
        **{
            **_ROUTER_LOSS,
            "architectures": ["Qwen3MoeForCausalLM"],
            "attention_bias": False,
            "decoder_sparse_step": 1,
            "head_dim": H,
            "mlp_only_layers": [],
            "model_type": "qwen3_moe",
            "moe_intermediate_size": inner,
            "norm_topk_prob": True,
            "num_experts": E,
            "num_experts_per_tok": C,
            "rope_scaling": None,
            "sliding_window": None,
            "transformers_version": "4.51.0",
            **changes,
        },
    )


def gpt_oss5(*, K: int, H: int, E: int, C: int, sizes: Config, **changes: Any) -> Config:
    """``GptOssConfig`` of transformers 5."""
    layers = sizes["L"]
    return {
        **common5("gpt_oss", "GptOssForCausalLM", K, sizes),
        **_ROUTER_LOSS,
        "attention_bias": True,
        "head_dim": H,
        "layer_types": ["full_attention" if index % 2 else "sliding_attention" for index in range(layers)],
        "num_experts_per_tok": C,
        "num_local_experts": E,
        "rms_norm_eps": 1e-05,
        "rope_parameters": {
            "rope_type": "yarn",
            "rope_theta": 150.0,
            "factor": 8.0,
            "beta_fast": 4.0,
            "beta_slow": 1.0,
            "truncate": False,
            "original_max_position_embeddings": 16,
        },
        "sliding_window": 4,
        "swiglu_alpha": 1.702,
        "swiglu_limit": 7.0,
        **changes,
    }


def deepseek_v3_5(*, heads: Config, experts: Config, sizes: Config, **changes: Any) -> Config:
    """``DeepseekV3Config`` of transformers 5.

    Args:
        heads: ``q_lora_rank``, ``kv_lora_rank``, ``qk_nope_head_dim``, ``qk_rope_head_dim``, ``v_head_dim``.
        experts: ``n_routed_experts``, ``num_experts_per_tok``, ``n_group``, ``topk_group``, ``moe_intermediate_size``.
        sizes: as everywhere.
        **changes: other fields.
    """
    return {
        **common5("deepseek_v3", "DeepseekV3ForCausalLM", sizes["N"], sizes),
        "attention_bias": False,
        "first_k_dense_replace": 1,
        "head_dim": heads["qk_rope_head_dim"],
        "n_shared_experts": 1,
        "norm_topk_prob": True,
        "num_nextn_predict_layers": 0,
        "output_router_logits": False,
        "pretraining_tp": 1,
        "qk_head_dim": heads["qk_nope_head_dim"] + heads["qk_rope_head_dim"],
        "rope_interleave": True,
        "rope_parameters": DEFAULT_ROPE,
        "routed_scaling_factor": 2.5,
        **heads,
        **experts,
        **changes,
    }


def deepseek_v3_4_33(*, heads: Config, experts: Config, sizes: Config, **changes: Any) -> Config:
    """deepseek-ai/DeepSeek-V3: ``scoring_func``, ``topk_method`` and ``rope_scaling`` of type yarn."""
    return {
        **mistral_4_36(K=sizes["N"], sizes=sizes),
        "architectures": ["DeepseekV3ForCausalLM"],
        "attention_bias": False,
        "aux_loss_alpha": 0.001,
        "ep_size": 1,
        "first_k_dense_replace": 1,
        "max_position_embeddings": 4096,
        "model_type": "deepseek_v3",
        "moe_layer_freq": 1,
        "n_shared_experts": 1,
        "norm_topk_prob": True,
        "num_nextn_predict_layers": 0,
        "rms_norm_eps": 1e-06,
        "rope_scaling": None,
        "rope_theta": 10000,
        "routed_scaling_factor": 2.5,
        "scoring_func": "sigmoid",
        "seq_aux": True,
        "topk_method": "noaux_tc",
        "transformers_version": "4.33.1",
        **heads,
        **experts,
        **changes,
    }
