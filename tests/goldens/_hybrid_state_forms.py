"""``config.json`` dictionaries of models with Mamba-2 and attention; see ``_config_forms``."""

from typing import Any

from tests.goldens._case_types import Config
from tests.goldens._config_forms import common5
from tests.goldens._state_forms import NO_LIMIT, Heads


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
        "time_step_limit": NO_LIMIT,
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
        "time_step_limit": NO_LIMIT,
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


def nemotron_h_5(
    *, K: int, H: int, E: int, C: int, kinds: list[str], heads: Heads, sizes: Config, **changes: Any
) -> Config:
    """``NemotronHConfig`` of transformers 5; ``heads`` is of the Mamba-2."""
    n, h, groups, state = heads
    common = common5("nemotron_h", "NemotronHForCausalLM", K, sizes)
    absent = ("hidden_act", "num_hidden_layers", "rms_norm_eps", "rope_parameters")
    return {
        **{name: value for name, value in common.items() if name not in absent},
        "attention_bias": False,
        "chunk_size": 8,
        "conv_kernel": 4,
        "expand": 2,
        "head_dim": H,
        "hidden_dropout": 0.0,
        "layer_norm_epsilon": 1e-05,
        "layers_block_type": kinds,
        "mamba_head_dim": h,
        "mamba_hidden_act": "silu",
        "mamba_num_heads": n,
        "mamba_proj_bias": False,
        "mamba_ssm_cache_dtype": "float32",
        "mlp_bias": False,
        "mlp_hidden_act": "relu2",
        "moe_intermediate_size": 18,
        "moe_latent_size": None,
        "moe_shared_expert_intermediate_size": 22,
        "moe_shared_expert_overlap": True,
        "mtp_layers_block_type": ["full_attention", "moe"],
        "n_group": 1,
        "n_groups": groups,
        "n_routed_experts": E,
        "n_shared_experts": 1,
        "norm_topk_prob": True,
        "num_experts_per_tok": C,
        "num_logits_to_keep": 1,
        "num_nextn_predict_layers": 0,
        "output_router_logits": False,
        "pad_token_id": 0,
        "rescale_prenorm_residual": False,
        "residual_in_fp32": False,
        "routed_scaling_factor": 1.0,
        "sliding_window": None,
        "ssm_state_size": state,
        "time_step_floor": 0.0001,
        "time_step_limit": NO_LIMIT,
        "time_step_max": 0.1,
        "time_step_min": 0.001,
        "topk_group": 1,
        "use_bias": False,
        "use_conv_bias": True,
        "use_mamba_kernels": True,
        **changes,
    }


def nemotron_h_4_48(*, K: int, H: int, pattern: str, heads: Heads, sizes: Config, **changes: Any) -> Config:
    """nvidia/Nemotron-H-8B-Base-8K: a pattern of letters, no experts; transformers' own names for other fields."""
    form = {
        **nemotron_h_5(K=K, H=H, E=0, C=0, kinds=[], heads=heads, sizes=sizes),
        "attention_head_dim": H,
        "hybrid_override_pattern": pattern,
        "num_hidden_layers": len(pattern),
        "time_step_limit": [0.0, float("inf")],
        "torch_dtype": "float32",
        "transformers_version": "4.48.0.dev0",
        **changes,
    }
    new = ("dtype", "layers_block_type", "mtp_layers_block_type", "n_group", "topk_group", "norm_topk_prob")
    return {
        name: value for name, value in form.items() if name not in new and "exper" not in name and "moe" not in name
    }
