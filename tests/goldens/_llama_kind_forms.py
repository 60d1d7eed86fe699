"""``config.json`` dictionaries of dense families near a Llama, as transformers 5 and 4 (``*_4_*``) write them."""

from typing import Any

from tests.goldens._case_types import Config
from tests.goldens._config_forms import common5, llama_4_35

FULL, SLIDING = "full_attention", "sliding_attention"


def form5(family: str, architecture: str, K: int, sizes: Config, *without: str, **fields: Any) -> Config:
    """Returns the fields that all families have, but for ``without``, and the family's own fields."""
    common = common5(family, architecture, K, sizes)
    return {key: value for key, value in common.items() if key not in without} | fields


def olmo3_5(*, K: int, window: int, types: list[str], rope: Config, sizes: Config, **changes: Any) -> Config:
    """``Olmo3Config`` of transformers 5."""
    own = {"attention_bias": False, "layer_types": types, "rope_parameters": rope, "sliding_window": window}
    return form5("olmo3", "Olmo3ForCausalLM", K, sizes) | own | changes


def olmo3_4_57(*, sizes: Config, **changes: Any) -> Config:
    """allenai/Olmo-3-1025-7B, before it was trained on long texts: neither key/value heads nor types need be there."""
    own = {
        "architectures": ["Olmo3ForCausalLM"],
        "eos_token_id": 2,
        "model_type": "olmo3",
        "rms_norm_eps": 1e-06,
        "rope_theta": 500000,
        "sliding_window": 6,
        "transformers_version": "4.57.0",
    }
    form = llama_4_35(K=1, sizes=sizes) | own | changes
    return {key: value for key, value in form.items() if key != "num_key_value_heads"}


def ministral3_5(*, K: int, H: int, rope: Config, sizes: Config, **changes: Any) -> Config:
    """``Ministral3Config`` of transformers 5."""
    own = {"head_dim": H, "rope_parameters": rope, "sliding_window": None}
    return form5("ministral3", "Ministral3ForCausalLM", K, sizes) | own | changes


def _cohere5(family: str, architecture: str, K: int, sizes: Config) -> Config:
    own = {"attention_bias": False, "layer_norm_eps": 1e-05, "logit_scale": 0.6, "tie_word_embeddings": True}
    return form5(family, architecture, K, sizes, "rms_norm_eps") | own


def cohere5(*, K: int, sizes: Config, **changes: Any) -> Config:
    """``CohereConfig`` of transformers 5."""
    return _cohere5("cohere", "CohereForCausalLM", K, sizes) | {"use_qk_norm": False} | changes


def cohere2_5(*, K: int, window: int, types: list[str], sizes: Config, **changes: Any) -> Config:
    """``Cohere2Config`` of transformers 5."""
    head_size = sizes["D"] // sizes["N"]
    own = {"head_dim": head_size, "layer_types": types, "sliding_window": window}
    return _cohere5("cohere2", "Cohere2ForCausalLM", K, sizes) | own | changes


def cohere2_4_48(*, K: int, sizes: Config, **changes: Any) -> Config:
    """CohereLabs/c4ai-command-r7b-12-2024: fields of the original training code; it does not say what is tied."""
    own = {
        "architectures": ["Cohere2ForCausalLM"],
        "attention_dropout": 0.0,
        "cache_implementation": "hybrid",
        "head_dim": sizes["D"] // sizes["N"],
        "layer_norm_eps": 1e-05,
        "layer_switch": 2,
        "logit_scale": 0.7,
        "model_type": "cohere2",
        "order_of_interleaved_layers": "local_attn_first",
        "pad_token_id": 0,
        "position_embedding_type": "rope_gptj",
        "rope_theta": 50000,
        "rotary_pct": 1.0,
        "sliding_window": 5,
        "sliding_window_pattern": 2,
        "tie_word_embeddings": True,
        "transformers_version": "4.48.0.dev0",
        "use_embedding_sharing": True,
        "use_gated_activation": True,
        "use_parallel_block": True,
        "use_parallel_embedding": True,
    }
    absent = ("rms_norm_eps", "pretraining_tp")
    form = {key: value for key, value in llama_4_35(K=K, sizes=sizes).items() if key not in absent}
    return form | own | changes


def exaone4_5(*, K: int, types: list[str], window: int | None, sizes: Config, **changes: Any) -> Config:
    """``Exaone4Config`` of transformers 5."""
    own = {"layer_types": types, "sliding_window": window, "sliding_window_pattern": 4 if window else 0}
    return form5("exaone4", "Exaone4ForCausalLM", K, sizes) | own | changes


def exaone4_4_54(*, K: int, H: int, types: list[str], sizes: Config, **changes: Any) -> Config:
    """LGAI-EXAONE/EXAONE-4.0-32B: a head size, RoPE of Llama 3, a pattern as text beside the types."""
    own = {
        "architectures": ["Exaone4ForCausalLM"],
        "attention_dropout": 0.0,
        "head_dim": H,
        "layer_types": types,
        "model_type": "exaone4",
        "pad_token_id": 0,
        "rope_scaling": {
            "factor": 16.0,
            "high_freq_factor": 4.0,
            "low_freq_factor": 1.0,
            "original_max_position_embeddings": 16,
            "rope_type": "llama3",
        },
        "rope_theta": 1000000,
        "sliding_window": 5,
        "sliding_window_pattern": "LLLG",
        "transformers_version": "4.54.0.dev0",
    }
    absent = ("pretraining_tp", "attention_bias")
    form = {key: value for key, value in llama_4_35(K=K, sizes=sizes).items() if key not in absent}
    return form | own | changes


def hunyuan5(*, K: int, H: int, rope: Config, sizes: Config, **changes: Any) -> Config:
    """``HunYuanDenseV1Config`` of transformers 5."""
    own = {
        "attention_bias": False,
        "eod_token_id": 3,
        "head_dim": H,
        "pretraining_tp": 1,
        "rope_parameters": rope,
    }
    return form5("hunyuan_v1_dense", "HunYuanDenseV1ForCausalLM", K, sizes) | own | changes


def hunyuan_4_56(*, K: int, H: int, sizes: Config, **changes: Any) -> Config:
    """tencent/Hunyuan-0.5B-Instruct: dynamic RoPE with a fixed alpha, and fields that transformers does not read."""
    own = {
        "architectures": ["HunYuanDenseV1ForCausalLM"],
        "attention_head_dim": H,
        "cla_share_factor": 2,
        "head_dim": H,
        "mlp_bias": False,
        "model_type": "hunyuan_v1_dense",
        "norm_type": "rms",
        "rope_scaling": {
            "alpha": 1000.0,
            "beta_fast": 32,
            "beta_slow": 1,
            "factor": 1.0,
            "mscale": 1.0,
            "mscale_all_dim": 0.0,
            "type": "dynamic",
        },
        "tie_word_embeddings": True,
        "transformers_version": "4.41.2",
        "use_cla": False,
        "use_qk_norm": True,
        "use_rotary_pos_emb": True,
    }
    return llama_4_35(K=K, sizes=sizes) | own | changes


def seed_oss5(*, K: int, H: int, sizes: Config, **changes: Any) -> Config:
    """``SeedOssConfig`` of transformers 5."""
    own = {
        "attention_bias": True,
        "attention_dropout": 0.1,
        "attention_out_bias": False,
        "head_dim": H,
        "mlp_bias": False,
        "pretraining_tp": 1,
        "residual_dropout": 0.1,
    }
    return form5("seed_oss", "SeedOssForCausalLM", K, sizes) | own | changes


def ernie4_5_5(*, K: int, H: int, sizes: Config, **changes: Any) -> Config:
    """``Ernie4_5Config`` of transformers 5."""
    own = {"head_dim": H, "tie_word_embeddings": True, "use_bias": False}
    return form5("ernie4_5", "Ernie4_5ForCausalLM", K, sizes, "attention_dropout") | own | changes
