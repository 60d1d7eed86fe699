"""``config.json`` dictionaries of further dense families, as transformers 5 and, for ``*_4_*``, 4 write them."""

from typing import Any

from tests.goldens._case_types import Config
from tests.goldens._config_forms import common5, llama_4_35


def _form5(family: str, architecture: str, K: int, sizes: Config, *without: str, **fields: Any) -> Config:
    """What all families have but for the fields ``without``, and fields of its own."""
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
