"""``config.json`` dictionaries of models with state-space layers and short convolutions; see ``_config_forms``."""

from typing import Any

from tests.goldens._case_types import Config
from tests.goldens._config_forms import common5

Heads = tuple[int, int, int, int]
NO_LIMIT = [0.0, {"__float__": "Infinity"}]
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
        "time_step_limit": NO_LIMIT,
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
