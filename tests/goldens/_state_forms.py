"""``config.json`` dictionaries of models with state-space layers and short convolutions; see ``_config_forms``."""

from typing import Any

from tests.goldens._case_types import Config
from tests.goldens._config_forms import common5

Heads = tuple[int, int, int, int]
_NO_LIMIT = [0.0, {"__float__": "Infinity"}]
_UNLIKE_LLAMA = ("attention_dropout", "hidden_act", "rms_norm_eps")


def _lfm2_common(family: str, architecture: str, K: int, sizes: Config) -> Config:
    common = common5(family, architecture, K, sizes)
    return {
        **{name: value for name, value in common.items() if name not in _UNLIKE_LLAMA},
        "conv_L_cache": 3,
        "conv_bias": False,
        "norm_eps": 1e-05,
        "pad_token_id": 0,
        "rope_parameters": {"rope_theta": 1000000.0, "rope_type": "default"},
        "tie_word_embeddings": True,
    }


def lfm2_5(*, K: int, kinds: list[str], sizes: Config, **changes: Any) -> Config:
    """``Lfm2Config`` of transformers 5."""
    return {
        **_lfm2_common("lfm2", "Lfm2ForCausalLM", K, sizes),
        "block_auto_adjust_ff_dim": True,
        "block_ffn_dim_multiplier": 1.0,
        "block_multiple_of": 256,
        "full_attn_idxs": None,
        "layer_types": kinds,
        **changes,
    }


def lfm2_4_54(*, K: int, kinds: list[str], sizes: Config, **changes: Any) -> Config:
    """LiquidAI/LFM2-1.2B: ``full_attn_idxs``, and ``block_`` fields of which transformers reads a few."""
    form = {
        **_lfm2_common("lfm2", "Lfm2ForCausalLM", K, sizes),
        "block_auto_adjust_ff_dim": True,
        "block_dim": sizes["D"],
        "block_ff_dim": sizes["F"],
        "block_ffn_dim_multiplier": 1.0,
        "block_multiple_of": 256,
        "block_norm_eps": 1e-05,
        "block_use_swiglu": True,
        "conv_dim": sizes["D"],
        "eos_token_id": 7,
        "full_attn_idxs": [index for index, kind in enumerate(kinds) if kind != "conv"],
        "layer_types": kinds,
        "num_heads": sizes["N"],
        "rope_theta": 1000000.0,
        "tie_embedding": True,
        "torch_dtype": "float32",
        "transformers_version": "4.54.0",
        "use_pos_enc": True,
        **changes,
    }
    absent = ("dtype", "intermediate_size", "rope_parameters", "tie_word_embeddings")
    return {name: value for name, value in form.items() if name not in absent}


def lfm2_moe_5(*, K: int, E: int, C: int, kinds: list[str], sizes: Config, **changes: Any) -> Config:
    """``Lfm2MoeConfig`` of transformers 5; E is the number of experts, C how many a token chooses."""
    return {
        **_lfm2_common("lfm2_moe", "Lfm2MoeForCausalLM", K, sizes),
        "layer_types": kinds,
        "norm_topk_prob": True,
        "num_dense_layers": 1,
        "num_experts": E,
        "num_experts_per_tok": C,
        "output_router_logits": False,
        "routed_scaling_factor": 1.0,
        "use_expert_bias": True,
        **changes,
    }


def mamba2_5(*, D: int, V: int, L: int, heads: Heads, **changes: Any) -> Config:
    """``Mamba2Config`` of transformers 5; ``heads`` is their number, size, groups and state size."""
    n, h, groups, state = heads
    return {
        "architectures": ["Mamba2ForCausalLM"],
        "bos_token_id": 0,
        "chunk_size": 8,
        "conv_kernel": 4,
        "dtype": "float32",
        "eos_token_id": 2,
        "expand": n * h // D,
        "head_dim": h,
        "hidden_act": "silu",
        "hidden_size": D,
        "initializer_range": 0.1,
        "layer_norm_epsilon": 1e-05,
        "model_type": "mamba2",
        "n_groups": groups,
        "num_heads": n,
        "num_hidden_layers": L,
        "pad_token_id": 1,
        "rescale_prenorm_residual": False,
        "residual_in_fp32": True,
        "state_size": state,
        "tie_word_embeddings": False,
        "time_step_floor": 0.0001,
        "time_step_limit": _NO_LIMIT,
        "time_step_max": 0.1,
        "time_step_min": 0.001,
        "time_step_rank": 3,
        "transformers_version": "5.23.0",
        "use_bias": False,
        "use_cache": True,
        "use_conv_bias": True,
        "vocab_size": V,
        **changes,
    }


def mamba2_4_44(*, D: int, V: int, L: int, heads: Heads, **changes: Any) -> Config:
    """mistralai/Mamba-Codestral-7B-v0.1: an infinite limit as JSON has none, ``norm_before_gate``, ``rms_norm``."""
    form = {
        **mamba2_5(D=D, V=V, L=L, heads=heads),
        "norm_before_gate": True,
        "rms_norm": True,
        "time_step_limit": [0.0, float("inf")],
        "time_step_rank": 256,
        "torch_dtype": "float32",
        "transformers_version": "4.44.0.dev0",
        **changes,
    }
    return {name: value for name, value in form.items() if name != "dtype"}


def _mamba_fields(heads: Heads, D: int) -> Config:
    n, h, groups, state = heads
    return {
        "mamba_chunk_size": 8,
        "mamba_conv_bias": True,
        "mamba_d_conv": 4,
        "mamba_d_head": h,
        "mamba_d_state": state,
        "mamba_expand": n * h // D,
        "mamba_n_groups": groups,
        "mamba_n_heads": n,
        "mamba_proj_bias": False,
    }


def granite_hybrid_5(
    *,
    K: int,
    E: int,
    C: int,
    F_shared: int,
    kinds: list[str],
    heads: Heads,
    sizes: Config,
    **changes: Any,
) -> Config:
    """``GraniteMoeHybridConfig`` of transformers 5; ``heads`` is of the Mamba-2."""
    return {
        **common5("granitemoehybrid", "GraniteMoeHybridForCausalLM", K, sizes),
        **_mamba_fields(heads, sizes["D"]),
        "attention_bias": False,
        "attention_multiplier": 0.25,
        "embedding_multiplier": 1.5,
        "layer_types": kinds,
        "logits_scaling": 0.7,
        "num_experts_per_tok": C,
        "num_local_experts": E,
        "output_router_logits": False,
        "position_embedding_type": None,
        "residual_multiplier": 0.8,
        "router_aux_loss_coef": 0.001,
        "shared_intermediate_size": F_shared,
        "time_step_limit": _NO_LIMIT,
        **changes,
    }


def granite_hybrid_4_56(
    *, K: int, F_shared: int, kinds: list[str], heads: Heads, sizes: Config, **changes: Any
) -> Config:
    """ibm-granite/granite-4.0-h-micro: no routed experts, ``mamba`` and ``attention`` for kinds, nope for positions."""
    form = {
        **granite_hybrid_5(K=K, E=0, C=0, F_shared=F_shared, kinds=kinds, heads=heads, sizes=sizes),
        "init_method": "mup",
        "normalization_function": "rmsnorm",
        "position_embedding_type": "nope",
        "rope_scaling": None,
        "rope_theta": 10000,
        "torch_dtype": "float32",
        "transformers_version": "4.56.0",
        **changes,
    }
    return {name: value for name, value in form.items() if name not in ("dtype", "rope_parameters", "time_step_limit")}


def falcon_h1_5(*, K: int, heads: Heads, sizes: Config, **changes: Any) -> Config:
    """``FalconH1Config`` of transformers 5; ``heads`` is of the Mamba-2."""
    return {
        **common5("falcon_h1", "FalconH1ForCausalLM", K, sizes),
        **_mamba_fields(heads, sizes["D"]),
        "attention_bias": False,
        "attention_in_multiplier": 0.8,
        "attention_out_multiplier": 1.3,
        "embedding_multiplier": 1.2,
        "key_multiplier": 0.6,
        "lm_head_multiplier": 0.9,
        "mamba_d_ssm": heads[0] * heads[1],
        "mamba_norm_before_gate": True,
        "mamba_rms_norm": False,
        "mlp_bias": False,
        "mlp_multipliers": [1.4, 0.7],
        "num_logits_to_keep": 1,
        "pad_token_id": 0,
        "projectors_bias": False,
        "ssm_in_multiplier": 1.1,
        "ssm_multipliers": [0.7, 1.2, 0.9, 1.3, 0.8],
        "ssm_out_multiplier": 0.9,
        "time_step_limit": _NO_LIMIT,
        **changes,
    }


def falcon_h1_4_52(*, K: int, heads: Heads, sizes: Config, **changes: Any) -> Config:
    """tiiuae/Falcon-H1-0.5B-Instruct: a head size, ``attn_layer_indices``, ``mamba_use_mlp``, a great theta."""
    form = {
        **falcon_h1_5(K=K, heads=heads, sizes=sizes),
        "attn_layer_indices": None,
        "mamba_use_mlp": True,
        "rope_scaling": None,
        "rope_theta": 100000000000.0,
        "torch_dtype": "float32",
        "transformers_version": "4.52.0",
        **changes,
    }
    return {name: value for name, value in form.items() if name not in ("dtype", "rope_parameters", "time_step_limit")}
