"""``config.json`` dictionaries as the versions of transformers write them.

The functions named ``*5`` give what transformers 5.23.0 writes (``make_goldens.py`` checks that it reads each and
writes back the same). The others follow the files published with well-known models, which 4.x versions wrote: the
keys, their absence and their nulls are those of the file named in each docstring.

Sizes are given in axis letters: D model, F feed-forward, V vocabulary, L layers, N query heads, K key/value heads,
H head size.
"""

from typing import Any

from tests.goldens._case_types import Config

DEFAULT_ROPE = {"rope_theta": 10000.0, "rope_type": "default"}


def _sizes(*, D: int, F: int, V: int, L: int, N: int) -> Config:
    return {
        "hidden_size": D,
        "intermediate_size": F,
        "vocab_size": V,
        "num_hidden_layers": L,
        "num_attention_heads": N,
        "hidden_act": "silu",
        "initializer_range": 0.02,
        "use_cache": True,
    }


def common5(family: str, architecture: str, K: int, sizes: Config) -> Config:
    """Returns the fields that all families have in transformers 5."""
    return {
        **_sizes(**sizes),
        "architectures": [architecture],
        "attention_dropout": 0.0,
        "bos_token_id": 1,
        "dtype": "float32",
        "eos_token_id": 2,
        "max_position_embeddings": 128,
        "model_type": family,
        "num_key_value_heads": K,
        "pad_token_id": None,
        "rms_norm_eps": 1e-06,
        "rope_parameters": DEFAULT_ROPE,
        "tie_word_embeddings": False,
        "transformers_version": "5.23.0",
    }


def llama5(*, K: int, H: int, sizes: Config, **changes: Any) -> Config:
    """``LlamaConfig`` of transformers 5."""
    return {
        **common5("llama", "LlamaForCausalLM", K, sizes),
        "attention_bias": False,
        "head_dim": H,
        "mlp_bias": False,
        "pretraining_tp": 1,
        **changes,
    }


def mistral5(*, K: int, H: int, sizes: Config, **changes: Any) -> Config:
    """``MistralConfig`` of transformers 5."""
    return {**common5("mistral", "MistralForCausalLM", K, sizes), "head_dim": H, "sliding_window": None, **changes}


def _qwen_windows(L: int) -> Config:
    return {
        "bos_token_id": None,
        "eos_token_id": None,
        "layer_types": ["full_attention"] * L,
        "max_window_layers": 28,
        "sliding_window": None,
        "use_sliding_window": False,
    }


def qwen2_5(*, K: int, sizes: Config, **changes: Any) -> Config:
    """``Qwen2Config`` of transformers 5 (H is always D / N and not stored)."""
    return {**common5("qwen2", "Qwen2ForCausalLM", K, sizes), **_qwen_windows(sizes["L"]), **changes}


def qwen3_5(*, K: int, H: int, sizes: Config, **changes: Any) -> Config:
    """``Qwen3Config`` of transformers 5."""
    return {
        **common5("qwen3", "Qwen3ForCausalLM", K, sizes),
        **_qwen_windows(sizes["L"]),
        "attention_bias": False,
        "head_dim": H,
        **changes,
    }


def llama_4_28(*, sizes: Config, **changes: Any) -> Config:
    """The first Llama files (huggyllama/llama-7b): no key/value heads, no head size, no RoPE field at all."""
    return {
        **_sizes(**sizes),
        "architectures": ["LlamaForCausalLM"],
        "bos_token_id": 1,
        "eos_token_id": 2,
        "max_position_embeddings": 2048,
        "model_type": "llama",
        "pad_token_id": 0,
        "rms_norm_eps": 1e-06,
        "tie_word_embeddings": False,
        "torch_dtype": "float32",
        "transformers_version": "4.28.0",
        **changes,
    }


def llama_4_35(*, K: int, sizes: Config, **changes: Any) -> Config:
    """TinyLlama/TinyLlama-1.1B-Chat-v1.0: ``rope_scaling`` null, no head size."""
    return {
        **_sizes(**sizes),
        "architectures": ["LlamaForCausalLM"],
        "attention_bias": False,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "max_position_embeddings": 2048,
        "model_type": "llama",
        "num_key_value_heads": K,
        "pretraining_tp": 1,
        "rms_norm_eps": 1e-05,
        "rope_scaling": None,
        "rope_theta": 10000.0,
        "tie_word_embeddings": False,
        "torch_dtype": "float32",
        "transformers_version": "4.35.0",
        **changes,
    }


def llama_4_43(*, K: int, sizes: Config, **changes: Any) -> Config:
    """meta-llama/Llama-3.1-8B-Instruct: several end tokens, ``rope_scaling`` with ``rope_type``."""
    return llama_4_35(
        K=K,
        sizes=sizes,
        **{
            "attention_dropout": 0.0,
            "eos_token_id": [2, 3, 4],
            "max_position_embeddings": 131072,
            "mlp_bias": False,
            "transformers_version": "4.43.0",
            **changes,
        },
    )


def mistral_4_36(*, K: int, sizes: Config, **changes: Any) -> Config:
    """mistralai/Mistral-7B-Instruct-v0.2: no ``rope_scaling``, no head size, window null."""
    return {
        **_sizes(**sizes),
        "architectures": ["MistralForCausalLM"],
        "attention_dropout": 0.0,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "max_position_embeddings": 32768,
        "model_type": "mistral",
        "num_key_value_heads": K,
        "rms_norm_eps": 1e-05,
        "rope_theta": 1000000.0,
        "sliding_window": None,
        "tie_word_embeddings": False,
        "torch_dtype": "float32",
        "transformers_version": "4.36.0",
        **changes,
    }


def qwen2_4_40(*, K: int, sizes: Config, **changes: Any) -> Config:
    """Qwen/Qwen2.5-0.5B: a window is stored although ``use_sliding_window`` is false; no ``layer_types``."""
    return {
        **_sizes(**sizes),
        "architectures": ["Qwen2ForCausalLM"],
        "attention_dropout": 0.0,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "max_position_embeddings": 32768,
        "max_window_layers": 24,
        "model_type": "qwen2",
        "num_key_value_heads": K,
        "rms_norm_eps": 1e-06,
        "rope_theta": 1000000.0,
        "sliding_window": 32768,
        "tie_word_embeddings": False,
        "torch_dtype": "float32",
        "transformers_version": "4.40.1",
        "use_sliding_window": False,
        **changes,
    }


def qwen3_4_51(*, K: int, H: int, sizes: Config, **changes: Any) -> Config:
    """Qwen/Qwen3-0.6B: the head size stands in the file, ``rope_scaling`` and the window are null."""
    return qwen2_4_40(
        K=K,
        sizes=sizes,
        **{
            "architectures": ["Qwen3ForCausalLM"],
            "attention_bias": False,
            "head_dim": H,
            "model_type": "qwen3",
            "rope_scaling": None,
            "sliding_window": None,
            "transformers_version": "4.51.0",
            **changes,
        },
    )
