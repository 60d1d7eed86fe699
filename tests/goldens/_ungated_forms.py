"""``config.json`` dictionaries of families with layer norms or no gate, of transformers 5 and 4 (``*_4_*``)."""

from typing import Any

from tests.goldens._case_types import Config
from tests.goldens._config_forms import llama_4_35
from tests.goldens._llama_kind_forms import form5

_HALF = {"partial_rotary_factor": 0.5, "rope_theta": 10000.0, "rope_type": "default"}


def phi5(*, K: int, sizes: Config, **changes: Any) -> Config:
    """``PhiConfig`` of transformers 5."""
    own = {
        "embd_pdrop": 0.0,
        "hidden_act": "gelu_new",
        "layer_norm_eps": 1e-05,
        "qk_layernorm": False,
        "resid_pdrop": 0.0,
        "rope_parameters": _HALF,
    }
    return form5("phi", "PhiForCausalLM", K, sizes, "rms_norm_eps") | own | changes


def phi_4_37(*, sizes: Config, **changes: Any) -> Config:
    """microsoft/phi-2: the rotated share beside the base, no value of ``rope_scaling``."""
    own = {
        "architectures": ["PhiForCausalLM"],
        "embd_pdrop": 0.0,
        "hidden_act": "gelu_new",
        "layer_norm_eps": 1e-05,
        "max_position_embeddings": 2048,
        "model_type": "phi",
        "partial_rotary_factor": 0.4,
        "qk_layernorm": False,
        "resid_pdrop": 0.1,
        "transformers_version": "4.37.0",
    }
    absent = ("rms_norm_eps", "pretraining_tp", "attention_bias")
    form = {key: value for key, value in llama_4_35(K=sizes["N"], sizes=sizes).items() if key not in absent}
    return form | own | changes


def starcoder2_5(*, K: int, sizes: Config, **changes: Any) -> Config:
    """``Starcoder2Config`` of transformers 5."""
    own = {
        "embedding_dropout": 0.0,
        "hidden_act": "gelu_pytorch_tanh",
        "norm_epsilon": 1e-05,
        "residual_dropout": 0.0,
        "sliding_window": None,
        "tie_word_embeddings": True,
        "use_bias": True,
    }
    return form5("starcoder2", "Starcoder2ForCausalLM", K, sizes, "rms_norm_eps") | own | changes


def nemotron5(*, K: int, H: int, sizes: Config, **changes: Any) -> Config:
    """``NemotronConfig`` of transformers 5."""
    own = {
        "attention_bias": False,
        "head_dim": H,
        "hidden_act": "relu2",
        "mlp_bias": False,
        "norm_eps": 1e-05,
        "rope_parameters": _HALF,
    }
    return form5("nemotron", "NemotronForCausalLM", K, sizes, "rms_norm_eps") | own | changes


def arcee5(*, K: int, H: int, sizes: Config, **changes: Any) -> Config:
    """``ArceeConfig`` of transformers 5."""
    own = {"attention_bias": False, "head_dim": H, "hidden_act": "relu2", "mlp_bias": False}
    return form5("arcee", "ArceeForCausalLM", K, sizes) | own | changes


def helium5(*, K: int, sizes: Config, **changes: Any) -> Config:
    """``HeliumConfig`` of transformers 5."""
    own = {"attention_bias": False, "head_dim": sizes["D"] // sizes["N"], "mlp_bias": False}
    return form5("helium", "HeliumForCausalLM", K, sizes) | own | changes
