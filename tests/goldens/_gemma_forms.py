"""``config.json`` dictionaries of the later Gemmas, and of the files that wrap them."""

from typing import Any

from tests.goldens._case_types import Config
from tests.goldens._config_forms import common5

_ROPES = {
    "full_attention": {"partial_rotary_factor": 0.5, "rope_theta": 400.0, "rope_type": "proportional"},
    "sliding_attention": {"rope_theta": 50.0, "rope_type": "default"},
}


def gemma3n_5(*, K: int, H: int, window: int, types: list[str], sizes: Config, **changes: Any) -> Config:
    """``Gemma3nTextConfig`` of transformers 5."""
    common = _common("gemma3n_text", "Gemma3nForCausalLM", K, sizes)
    own = {
        "activation_sparsity_pattern": [0.0] * sizes["L"],
        "altup_active_idx": 0,
        "altup_coef_clip": 120.0,
        "altup_correct_scale": True,
        "altup_num_inputs": 4,
        "attention_bias": False,
        "final_logit_softcapping": 30.0,
        "head_dim": H,
        "hidden_activation": "gelu_pytorch_tanh",
        "hidden_size_per_layer_input": 6,
        "laurel_rank": 5,
        "layer_types": types,
        "num_kv_shared_layers": 0,
        "rope_parameters": {
            "full_attention": {"rope_theta": 400.0, "rope_type": "default"},
            "sliding_attention": {"rope_theta": 50.0, "rope_type": "default"},
        },
        "sliding_window": window,
        "vocab_size_per_layer_input": sizes["V"],
    }
    return common | own | changes


def gemma3n_4_53(text: Config) -> Config:
    """google/gemma-3n-E4B-it: ``text_config`` beside a vision and an audio tower, RoPE in transformers 4's fields."""
    old = {key: value for key, value in text.items() if key != "rope_parameters"}
    return {
        "architectures": ["Gemma3nForConditionalGeneration"],
        "audio_config": {"model_type": "gemma3n_audio"},
        "eos_token_id": [1, 2],
        "model_type": "gemma3n",
        "text_config": old | {"rope_local_base_freq": 60.0, "rope_scaling": None, "rope_theta": 300.0},
        "torch_dtype": "bfloat16",
        "transformers_version": "4.53.0.dev0",
        "vision_config": {"architecture": "mobilenetv5_300m_enc", "model_type": "gemma3n_vision"},
    }


def _common(family: str, architecture: str, K: int, sizes: Config) -> Config:
    form = common5(family, architecture, K, sizes)
    return {key: value for key, value in form.items() if key != "hidden_act"}


def gemma4_5(*, K: int, H: int, window: int, types: list[str], sizes: Config, **changes: Any) -> Config:
    """``Gemma4TextConfig`` of transformers 5."""
    common = _common("gemma4_text", "Gemma4ForCausalLM", K, sizes)
    own = {
        "attention_bias": False,
        "attention_k_eq_v": False,
        "enable_moe_block": False,
        "final_logit_softcapping": None,
        "head_dim": H,
        "hidden_activation": "gelu_pytorch_tanh",
        "hidden_size_per_layer_input": 0,
        "layer_types": types,
        "moe_intermediate_size": None,
        "num_experts": None,
        "num_kv_shared_layers": 0,
        "rope_parameters": _ROPES,
        "sliding_window": window,
        "top_k_experts": None,
        "use_bidirectional_attention": None,
        "use_double_wide_mlp": False,
        "vocab_size_per_layer_input": sizes["V"],
    }
    return common | own | changes


def gemma3_wrapped_4_50(*, K: int, H: int, sizes: Config, **changes: Any) -> Config:
    """google/gemma-3-4b-it: ``text_config`` beside a SigLIP tower; what equals the defaults is left out."""
    text = {
        "head_dim": H,
        "hidden_size": sizes["D"],
        "intermediate_size": sizes["F"],
        "model_type": "gemma3_text",
        "num_attention_heads": sizes["N"],
        "num_hidden_layers": sizes["L"],
        "num_key_value_heads": K,
        "query_pre_attn_scalar": 12,
        "rope_scaling": {"factor": 8.0, "rope_type": "linear"},
        "sliding_window": 5,
        "vocab_size": sizes["V"],
    }
    return {
        "architectures": ["Gemma3ForConditionalGeneration"],
        "boi_token_index": 3,
        "eoi_token_index": 4,
        "eos_token_id": [1, 2],
        "image_token_index": 5,
        "initializer_range": 0.02,
        "mm_tokens_per_image": 4,
        "model_type": "gemma3",
        "text_config": text | changes,
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
        "transformers_version": "4.50.0.dev0",
        "vision_config": {
            "hidden_size": 8,
            "image_size": 4,
            "intermediate_size": 10,
            "model_type": "siglip_vision_model",
            "num_attention_heads": 2,
            "num_hidden_layers": 1,
            "patch_size": 2,
            "vision_use_head": False,
        },
    }


def gemma4_unified_5(**fields: Any) -> Config:
    """``Gemma4UnifiedTextConfig`` of transformers 5."""
    absent = ("experts", "moe", "per_layer_input")
    own = {"architectures": ["Gemma4UnifiedForCausalLM"], "model_type": "gemma4_unified_text"}
    return {key: value for key, value in gemma4_5(**fields).items() if not any(part in key for part in absent)} | own


def gemma4_wrapped_5(text: Config, architecture: str = "Gemma4", model_type: str = "gemma4") -> Config:
    """``Gemma4Config`` of transformers 5, without the other models."""
    return {
        "architectures": [f"{architecture}ForConditionalGeneration"],
        "audio_config": None,
        "dtype": "float32",
        "eos_token_id": [1, 2],
        "model_type": model_type,
        "text_config": text,
        "tie_word_embeddings": False,
        "transformers_version": "5.23.0",
        "vision_config": None,
    }
