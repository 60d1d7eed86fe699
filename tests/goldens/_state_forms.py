"""``config.json`` dictionaries of models with state-space layers and short convolutions; see ``_config_forms``."""

from typing import Any

from tests.goldens._case_types import Config
from tests.goldens._config_forms import common5

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
