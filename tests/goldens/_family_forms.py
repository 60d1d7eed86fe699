"""``config.json`` dictionaries of further dense families, as transformers 5 and, for ``*_4_*``, 4 write them."""

from typing import Any

from tests.goldens._case_types import Config
from tests.goldens._config_forms import common5, llama_4_35


def _form5(family: str, architecture: str, K: int, sizes: Config, *without: str, **fields: Any) -> Config:
    """Returns the fields that all families have, but for ``without``, and the family's own fields."""
    common = common5(family, architecture, K, sizes)
    return {key: value for key, value in common.items() if key not in without} | fields


def phi3_5(*, K: int, rope: Config, sizes: Config, **changes: Any) -> Config:
    """``Phi3Config`` of transformers 5."""
    own = {"embd_pdrop": 0.0, "original_max_position_embeddings": 16, "resid_pdrop": 0.0, "sliding_window": None}
    return _form5("phi3", "Phi3ForCausalLM", K, sizes, rope_parameters=rope) | own | changes


def phi3_4_40(*, K: int, sizes: Config, **changes: Any) -> Config:
    """microsoft/Phi-3-mini-4k-instruct: ``sliding_window``, ``rope_scaling`` null."""
    own = {
        "architectures": ["Phi3ForCausalLM"],
        "embd_pdrop": 0.0,
        "max_position_embeddings": 4096,
        "model_type": "phi3",
        "original_max_position_embeddings": 4096,
        "pad_token_id": None,
        "resid_pdrop": 0.0,
        "sliding_window": 2047,
        "transformers_version": "4.40.2",
    }
    return llama_4_35(K=K, sizes=sizes) | own | changes


def granite5(*, K: int, sizes: Config, **changes: Any) -> Config:
    """``GraniteConfig`` of transformers 5."""
    own = {
        "attention_bias": False,
        "attention_multiplier": 0.2,
        "embedding_multiplier": 3.0,
        "logits_scaling": 1.5,
        "mlp_bias": False,
        "residual_multiplier": 0.6,
    }
    return _form5("granite", "GraniteForCausalLM", K, sizes) | own | changes


def smollm3_5(*, K: int, sizes: Config, rotates: list[int], types: list[str], **changes: Any) -> Config:
    """``SmolLM3Config`` of transformers 5."""
    own = {
        "attention_bias": False,
        "layer_types": types,
        "mlp_bias": False,
        "no_rope_layer_interval": 4,
        "no_rope_layers": rotates,
        "sliding_window": None,
        "use_sliding_window": False,
    }
    return _form5("smollm3", "SmolLM3ForCausalLM", K, sizes) | own | changes


def smollm3_4_53(*, K: int, sizes: Config, **changes: Any) -> Config:
    """HuggingFaceTB/SmolLM3-3B: ``no_rope_layers`` may be left out."""
    own = {
        "architectures": ["SmolLM3ForCausalLM"],
        "attention_bias": False,
        "mlp_bias": False,
        "model_type": "smollm3",
        "no_rope_layer_interval": 2,
        "pad_token_id": None,
        "rope_theta": 5000000.0,
        "transformers_version": "4.53.0",
        "use_sliding_window": False,
    }
    return llama_4_35(K=K, sizes=sizes) | own | changes


def olmo2_5(*, K: int, sizes: Config, **changes: Any) -> Config:
    """``Olmo2Config`` of transformers 5."""
    return _form5("olmo2", "Olmo2ForCausalLM", K, sizes, attention_bias=False) | changes


def gemma5(*, K: int, H: int, sizes: Config, **changes: Any) -> Config:
    """``GemmaConfig`` of transformers 5."""
    own = {
        "attention_bias": False,
        "head_dim": H,
        "hidden_act": "gelu_pytorch_tanh",
        "use_bidirectional_attention": None,
    }
    return _form5("gemma", "GemmaForCausalLM", K, sizes) | own | changes


def gemma_4_38(*, K: int, H: int, sizes: Config, **changes: Any) -> Config:
    """google/gemma-2b: ``hidden_act`` gelu, which means its tanh approximation."""
    own = {
        "architectures": ["GemmaForCausalLM"],
        "head_dim": H,
        "hidden_act": "gelu",
        "max_position_embeddings": 8192,
        "model_type": "gemma",
        "transformers_version": "4.38.0",
    }
    return llama_4_35(K=K, sizes=sizes) | own | changes


def _gemma2_own(H: int, window: int, types: list[str]) -> Config:
    return {
        "attention_bias": False,
        "attn_logit_softcapping": 5.0,
        "final_logit_softcapping": 4.0,
        "head_dim": H,
        "hidden_activation": "gelu_pytorch_tanh",
        "layer_types": types,
        "query_pre_attn_scalar": 20,
        "sliding_window": window,
        "use_bidirectional_attention": None,
    }


def gemma2_5(*, K: int, H: int, window: int, types: list[str], sizes: Config, **changes: Any) -> Config:
    """``Gemma2Config`` of transformers 5."""
    own = _gemma2_own(H, window, types)
    return _form5("gemma2", "Gemma2ForCausalLM", K, sizes, "hidden_act") | own | changes


def gemma3_5(*, K: int, H: int, window: int, types: list[str], sizes: Config, **changes: Any) -> Config:
    """``Gemma3TextConfig`` of transformers 5."""
    own = _gemma2_own(H, window, types) | {
        "_sliding_window_pattern": 6,
        "attn_logit_softcapping": None,
        "final_logit_softcapping": None,
        "rope_parameters": {
            "full_attention": {"rope_theta": 1000000.0, "rope_type": "default"},
            "sliding_attention": {"rope_theta": 50.0, "rope_type": "default"},
        },
        "use_bidirectional_attention": False,
    }
    return _form5("gemma3_text", "Gemma3ForCausalLM", K, sizes, "hidden_act") | own | changes


def gemma3_4_50(*, K: int, H: int, sizes: Config, **changes: Any) -> Config:
    """google/gemma-3-1b-it: ``rope_local_base_freq``, ``sliding_window_pattern``."""
    own = {
        "architectures": ["Gemma3ForCausalLM"],
        "attention_bias": False,
        "attn_logit_softcapping": None,
        "final_logit_softcapping": None,
        "head_dim": H,
        "hidden_activation": "gelu_pytorch_tanh",
        "model_type": "gemma3_text",
        "pad_token_id": 0,
        "query_pre_attn_scalar": 14,
        "rope_local_base_freq": 100,
        "rope_theta": 1000000,
        "sliding_window": 5,
        "sliding_window_pattern": 2,
        "transformers_version": "4.50.0.dev0",
    }
    form = {key: value for key, value in llama_4_35(K=K, sizes=sizes).items() if key != "hidden_act"}
    return form | own | changes


_HALF_ROPE = {"partial_rotary_factor": 0.5, "rope_theta": 10000.0, "rope_type": "default"}


def glm5(*, K: int, H: int, sizes: Config, **changes: Any) -> Config:
    """``GlmConfig`` of transformers 5."""
    own = {"attention_bias": True, "head_dim": H, "rope_parameters": _HALF_ROPE}
    return _form5("glm", "GlmForCausalLM", K, sizes) | own | changes


def glm4_5(*, K: int, H: int, sizes: Config, **changes: Any) -> Config:
    """``Glm4Config`` of transformers 5."""
    own = {"architectures": ["Glm4ForCausalLM"], "model_type": "glm4"}
    return glm5(K=K, H=H, sizes=sizes) | own | changes


def stablelm5(*, K: int, sizes: Config, **changes: Any) -> Config:
    """``StableLmConfig`` of transformers 5."""
    own = {
        "hidden_dropout": 0.0,
        "layer_norm_eps": 1e-05,
        "qk_layernorm": False,
        "rope_parameters": {"partial_rotary_factor": 0.25, "rope_theta": 10000.0, "rope_type": "default"},
        "use_parallel_residual": False,
        "use_qkv_bias": False,
    }
    return _form5("stablelm", "StableLmForCausalLM", K, sizes, "rms_norm_eps") | own | changes


def gpt_neox5(*, sizes: Config, **changes: Any) -> Config:
    """``GPTNeoXConfig`` of transformers 5."""
    own = {
        "attention_bias": True,
        "classifier_dropout": 0.1,
        "hidden_act": "gelu",
        "hidden_dropout": 0.0,
        "is_decoder": False,
        "layer_norm_eps": 1e-05,
        "rope_parameters": {"partial_rotary_factor": 0.25, "rope_theta": 10000.0, "rope_type": "default"},
        "use_parallel_residual": True,
    }
    form = _form5("gpt_neox", "GPTNeoXForCausalLM", 1, sizes, "num_key_value_heads", "rms_norm_eps")
    return form | own | changes


def gpt_neox_4_24(*, sizes: Config, **changes: Any) -> Config:
    """EleutherAI/pythia-160m: ``rotary_pct``, ``rotary_emb_base``."""
    own = {
        "architectures": ["GPTNeoXForCausalLM"],
        "hidden_act": "gelu",
        "layer_norm_eps": 1e-05,
        "model_type": "gpt_neox",
        "pad_token_id": None,
        "rotary_emb_base": 500,
        "rotary_pct": 0.5,
        "transformers_version": "4.24.0",
        "use_parallel_residual": True,
    }
    absent = ("num_key_value_heads", "rms_norm_eps", "rope_theta", "rope_scaling", "attention_bias")
    form = {key: value for key, value in llama_4_35(K=1, sizes=sizes).items() if key not in absent}
    return form | own | changes


def gpt2_5(*, D: int, V: int, L: int, N: int, positions: int, **changes: Any) -> Config:
    """``GPT2Config`` of transformers 5."""
    return {
        "activation_function": "gelu_new",
        "add_cross_attention": False,
        "architectures": ["GPT2LMHeadModel"],
        "attn_pdrop": 0.1,
        "bos_token_id": 1,
        "dtype": "float32",
        "embd_pdrop": 0.1,
        "eos_token_id": 2,
        "initializer_range": 0.02,
        "layer_norm_epsilon": 1e-05,
        "model_type": "gpt2",
        "n_embd": D,
        "n_head": N,
        "n_inner": None,
        "n_layer": L,
        "n_positions": positions,
        "pad_token_id": None,
        "reorder_and_upcast_attn": False,
        "resid_pdrop": 0.1,
        "scale_attn_by_inverse_layer_idx": False,
        "scale_attn_weights": True,
        "summary_activation": None,
        "summary_first_dropout": 0.1,
        "summary_proj_to_labels": True,
        "summary_type": "cls_index",
        "summary_use_proj": True,
        "tie_word_embeddings": True,
        "transformers_version": "5.23.0",
        "use_cache": True,
        "vocab_size": V,
        **changes,
    }


def gpt2_4_0(*, D: int, V: int, L: int, N: int, positions: int, **changes: Any) -> Config:
    """openai-community/gpt2: ``n_ctx``; it does not say whether embeddings are tied."""
    return {
        "activation_function": "gelu_new",
        "architectures": ["GPT2LMHeadModel"],
        "attn_pdrop": 0.1,
        "bos_token_id": 1,
        "embd_pdrop": 0.1,
        "eos_token_id": 2,
        "initializer_range": 0.02,
        "layer_norm_epsilon": 1e-05,
        "model_type": "gpt2",
        "n_ctx": positions,
        "n_embd": D,
        "n_head": N,
        "n_layer": L,
        "n_positions": positions,
        "resid_pdrop": 0.1,
        "torch_dtype": "float32",
        "vocab_size": V,
        **changes,
    }


def gpt_bigcode5(*, D: int, V: int, L: int, N: int, positions: int, **changes: Any) -> Config:
    """``GPTBigCodeConfig`` of transformers 5."""
    return {
        "activation_function": "gelu_pytorch_tanh",
        "add_cross_attention": False,
        "architectures": ["GPTBigCodeForCausalLM"],
        "attention_softmax_in_fp32": True,
        "attn_pdrop": 0.1,
        "bos_token_id": 1,
        "dtype": "float32",
        "embd_pdrop": 0.1,
        "eos_token_id": 2,
        "initializer_range": 0.02,
        "layer_norm_epsilon": 1e-05,
        "model_type": "gpt_bigcode",
        "multi_query": True,
        "n_embd": D,
        "n_head": N,
        "n_inner": None,
        "n_layer": L,
        "n_positions": positions,
        "num_key_value_heads": N if changes.get("multi_query") is False else 1,
        "pad_token_id": None,
        "resid_pdrop": 0.1,
        "scale_attention_softmax_in_fp32": True,
        "scale_attn_weights": True,
        "tie_word_embeddings": True,
        "transformers_version": "5.23.0",
        "use_cache": True,
        "vocab_size": V,
        **changes,
    }


def gpt_bigcode_4_28(*, D: int, V: int, L: int, N: int, positions: int, **changes: Any) -> Config:
    """bigcode/starcoder: fields of its runner; it does not say whether embeddings are tied."""
    return {
        "activation_function": "gelu",
        "architectures": ["GPTBigCodeForCausalLM"],
        "attention_softmax_in_fp32": True,
        "attn_pdrop": 0.1,
        "bos_token_id": 1,
        "embd_pdrop": 0.1,
        "eos_token_id": 2,
        "inference_runner": 0,
        "initializer_range": 0.02,
        "layer_norm_epsilon": 1e-05,
        "max_batch_size": None,
        "max_sequence_length": None,
        "model_type": "gpt_bigcode",
        "multi_query": True,
        "n_embd": D,
        "n_head": N,
        "n_inner": None,
        "n_layer": L,
        "n_positions": positions,
        "pad_key_length": True,
        "pre_allocate_kv_cache": False,
        "resid_pdrop": 0.1,
        "scale_attention_softmax_in_fp32": True,
        "scale_attn_weights": True,
        "summary_activation": None,
        "summary_first_dropout": 0.1,
        "summary_proj_to_labels": True,
        "summary_type": "cls_index",
        "summary_use_proj": True,
        "torch_dtype": "float32",
        "transformers_version": "4.28.1",
        "use_cache": True,
        "validate_runner_input": True,
        "vocab_size": V,
        **changes,
    }
