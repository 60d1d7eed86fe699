"""Models of ``gguf_own_decoders.py`` as their authors store them: what llama.cpp's converter does, undone."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import numpy as np

from tests.goldens._case_types import Config
from tests.goldens.gguf_own_decoders import OWN, C, D, E, F, H, K, L, N, V, X, own_tensors

Weights = dict[str, np.ndarray]


def _split_halves(rows: np.ndarray, heads: int) -> np.ndarray:
    """Returns rows of queries or keys as they are before ``LlamaModel.permute``."""
    pairs = rows.reshape(heads, -1, 2, *rows.shape[1:])
    return pairs.swapaxes(1, 2).reshape(rows.shape)


def _by_layer(tensors: Mapping[str, np.ndarray]) -> Iterator[tuple[str, str, np.ndarray]]:
    for key, array in tensors.items():
        if key.startswith("blk."):
            _, layer, name = key.split(".", 2)
            yield layer, name.removesuffix(".weight"), array


def _outer(tensors: Mapping[str, np.ndarray], names: tuple[str, str, str]) -> Weights:
    stored = dict(zip(("token_embd.weight", "output_norm.weight", "output.weight"), names, strict=True))
    return {name: tensors[key] for key, name in stored.items() if key in tensors}


_ATTENTION: Final = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
}
_MODEL: Final = ("model.embed_tokens.weight", "model.norm.weight", "lm_head.weight")
_ONE_EACH: Final = {"ffn_gate_exps": 0, "ffn_down_exps": 1, "ffn_up_exps": 2}


def _llama_like(
    tensors: Mapping[str, np.ndarray], names: Mapping[str, str], experts: tuple[str, tuple[str, str, str]] | None = None
) -> Weights:
    """Returns the weights under names of layers' modules; experts one by one, under a module and three names."""
    weights = _outer(tensors, _MODEL)
    for layer, name, array in _by_layer(tensors):
        above = f"model.layers.{layer}."
        if experts is not None and name in _ONE_EACH:
            module, parts = experts
            keys = [f"{above}{module}.{index}.{parts[_ONE_EACH[name]]}.weight" for index in range(len(array))]
            weights |= dict(zip(keys, array, strict=True))
        else:
            weights[f"{above}{names[name]}.weight"] = array
    return weights


def _arctic(tensors: Mapping[str, np.ndarray]) -> Weights:
    names = {
        **_ATTENTION,
        "ffn_norm": "residual_layernorm",
        "ffn_norm_exps": "post_attention_layernorm",
        "ffn_gate": "residual_mlp.w1",
        "ffn_up": "residual_mlp.w3",
        "ffn_down": "residual_mlp.w2",
        "ffn_gate_inp": "block_sparse_moe.gate",
    }
    weights = _llama_like(tensors, names, ("block_sparse_moe.experts", ("w1", "w2", "w3")))
    for part, heads in (("q_proj", N), ("k_proj", K)):
        for key in [key for key in weights if part in key]:
            weights[key] = _split_halves(weights[key], heads)
    return weights


def _smallthinker(tensors: Mapping[str, np.ndarray]) -> Weights:
    names = {**_ATTENTION, "ffn_norm": "post_attention_layernorm", "ffn_gate_inp": "block_sparse_moe.primary_router"}
    return _llama_like(tensors, names, ("block_sparse_moe.experts", ("gate", "down", "up")))


def _step(tensors: Mapping[str, np.ndarray]) -> Weights:
    """Returns the weights of Step 3.5: norms without the 1 that they add."""
    names = {
        **_ATTENTION,
        "attn_gate": "self_attn.g_proj",
        "ffn_norm": "post_attention_layernorm",
        "ffn_gate": "mlp.gate_proj",
        "ffn_up": "mlp.up_proj",
        "ffn_down": "mlp.down_proj",
        "ffn_gate_inp": "moe.gate",
        "ffn_gate_exps": "moe.gate_proj",
        "ffn_up_exps": "moe.up_proj",
        "ffn_down_exps": "moe.down_proj",
        "ffn_gate_shexp": "share_expert.gate_proj",
        "ffn_up_shexp": "share_expert.up_proj",
        "ffn_down_shexp": "share_expert.down_proj",
        "exp_probs_b.bias": "moe.router_bias",
    }
    weights = _llama_like(tensors, names)
    renamed = {key.replace("router_bias.weight", "router_bias"): array for key, array in weights.items()}
    return {key: array - 1 if "norm" in key else array for key, array in renamed.items()}


_JAIS: Final = {
    "attn_norm": "ln_1",
    "attn_qkv": "attn.c_attn",
    "attn_output": "attn.c_proj",
    "ffn_norm": "ln_2",
    "ffn_up": "mlp.c_fc",
    "ffn_gate": "mlp.c_fc2",
    "ffn_down": "mlp.c_proj",
}
_EMBEDDED, _WIDTH = 8.0, 0.25  # powers of 2


def _jais(tensors: Mapping[str, np.ndarray]) -> Weights:
    """Returns the weights of Jais: matrices input-major, without the scales of embeddings and logits."""
    weights = _outer(tensors, ("transformer.wte.weight", "transformer.ln_f.weight", "lm_head.weight"))
    weights["transformer.ln_f.bias"] = tensors["output_norm.bias"]
    weights["transformer.wte.weight"] /= np.float32(_EMBEDDED)
    weights["lm_head.weight"] /= np.float32(_WIDTH)
    for layer, name, array in _by_layer(tensors):
        module, _, kind = name.partition(".")
        stored = array.T if array.ndim == 2 else array
        weights[f"transformer.h.{layer}.{_JAIS[module]}.{kind or 'weight'}"] = np.ascontiguousarray(stored)
    return weights


_SIZES: Final[Config] = {
    "hidden_size": D,
    "intermediate_size": F,
    "max_position_embeddings": 64,
    "num_attention_heads": N,
    "num_hidden_layers": L,
    "num_key_value_heads": K,
    "rms_norm_eps": 1e-5,
    "rope_theta": 400.0,
    "vocab_size": V,
}
_ARCTIC_CONFIG: Final[Config] = {
    **_SIZES,
    "moe_layer_frequency": 1,
    "num_experts_per_tok": C,
    "num_local_experts": E,
    "parallel_attn_mlp_res": True,
    "use_residual": True,
}
_SMALLTHINKER_CONFIG: Final[Config] = {
    **{name: value for name, value in _SIZES.items() if name != "intermediate_size"},
    "head_dim": H,
    "moe_enable_early_router": True,
    "moe_ffn_hidden_size": X,
    "moe_num_active_primary_experts": C,
    "moe_num_primary_experts": E,
    "moe_primary_router_apply_softmax": False,
    "norm_topk_prob": True,
    "num_hidden_layers": OWN["smallthinker"].layers,
    "rope_layout": [0, 1, 1, 1, 0],
    "sliding_window_layout": [0, 1, 1, 1, 0],
    "sliding_window_size": 4096,
    "tie_word_embeddings": False,
}
_JAIS_CONFIG: Final[Config] = {
    "activation_function": "swiglu",
    "layer_norm_epsilon": 1e-5,
    "mup_embeddings_scale": _EMBEDDED,
    "mup_output_alpha": 2.0,
    "mup_scale_qk_dot_by_d": True,
    "mup_width_scale": _WIDTH / 2,
    "n_embd": D,
    "n_head": 6,
    "n_inner": F,
    "n_layer": L,
    "n_positions": 64,
    "position_embedding_type": "alibi",
    "scale_attn_weights": True,
    "tie_word_embeddings": False,
    "vocab_size": V,
}
_STEP_CONFIG: Final[Config] = {
    "attention_other_setting": {"num_attention_heads": 6, "num_attention_groups": K, "head_dim": H},
    "head_dim": H,
    "hidden_size": D,
    "intermediate_size": F,
    "layer_types": ["sliding_attention", "full_attention", "sliding_attention", "full_attention"],
    "max_position_embeddings": 64,
    "model_type": "step3p5",
    "moe_intermediate_size": X,
    "moe_layers_enum": "1,2",
    "moe_num_experts": E,
    "moe_router_scaling_factor": 1.7,
    "moe_top_k": C,
    "num_attention_groups": K,
    "num_attention_heads": N,
    "num_hidden_layers": L,
    "num_nextn_predict_layers": 1,
    "partial_rotary_factors": [1.0, 0.5, 1.0, 0.5],
    "rms_norm_eps": 1e-5,
    "rope_theta": [90.0, 400.0, 90.0, 400.0],
    "share_expert_dim": X,
    "sliding_window": 5,
    "swiglu_limits": [0.0, 0.0, 0.0, 0.0],
    "vocab_size": V,
}
AUTHORS: Final[dict[str, tuple[str, Callable[[Mapping[str, np.ndarray]], Weights], Config]]] = {
    "ArcticForCausalLM": ("arctic", _arctic, _ARCTIC_CONFIG),
    "JAISLMHeadModel": ("jais", _jais, _JAIS_CONFIG),
    "SmallThinkerForCausalLM": ("smallthinker", _smallthinker, _SMALLTHINKER_CONFIG),
    "Step3p5ForCausalLM": ("step35", _step, _STEP_CONFIG),
}
"""Model, its weights as the architecture stores them, and its config.json, by architecture."""

_ALONE: Final[Config] = {**_SIZES, "head_dim": H, "stored_form": "gguf", "tie_word_embeddings": False}
_GROK: Final[Config] = {
    **_ALONE,
    "embedding_multiplier_scale": 3.0,
    "moe_intermediate_size": X,
    "norm_topk_prob": True,
    "num_experts_per_tok": C,
    "num_local_experts": E,
    "output_multiplier_scale": 0.6,
    "residual_moe": True,
}
_TURNS: Final[Config] = {
    "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
    "rope_parameters": {
        "full_attention": {"rope_type": "default", "rope_theta": 400.0},
        "sliding_attention": {"rope_type": "default", "rope_theta": 90.0},
    },
    "sliding_window": 5,
}
GGUF_ALONE: Final[dict[str, Config]] = {
    "GPTRefactForCausalLM": {**_ALONE, "num_key_value_heads": 1},
    "Grok1ForCausalLM": _GROK,
    "MaincoderForCausalLM": _ALONE,
    "Plamo3ForCausalLM": {**_ALONE, **_TURNS},
    "PlamoForCausalLM": _ALONE,
}
"""Fields that readers of GGUF files give, of architectures without another form."""
GGUF_FILES: Final[dict[str, tuple[str, ...]]] = {
    "ArcticForCausalLM": ("arctic",),
    "BailingMoeForCausalLM": ("bailingmoe",),
    "BailingMoeV2ForCausalLM": ("bailingmoe2",),
    "DeepseekForCausalLM": ("deepseek", "deepseek2-ocr"),
    "GPTRefactForCausalLM": ("refact",),
    "Grok1ForCausalLM": ("grok",),
    "HunYuanDenseV1ForCausalLM": ("hunyuan_vl",),
    "JAISLMHeadModel": ("jais",),
    "MaincoderForCausalLM": ("maincoder",),
    "OpenELMForCausalLM": ("openelm",),
    "Plamo3ForCausalLM": ("plamo3",),
    "PlamoForCausalLM": ("plamo",),
    "SmallThinkerForCausalLM": ("smallthinker",),
    "Step3p5ForCausalLM": ("step35",),
}
"""``general.architecture`` of the files that architectures are read from."""


def authors_config(architecture: str) -> dict[str, Any]:
    """Returns the config.json of a model under its authors' names, or the fields that stand for it."""
    values = AUTHORS[architecture][2] if architecture in AUTHORS else GGUF_ALONE[architecture]
    return {**values, "architectures": [architecture], "torch_dtype": "float32"}


def authors_weights(architecture: str) -> Weights:
    """Returns the weights of a model under its authors' names."""
    name, stored, _ = AUTHORS[architecture]
    return stored(own_tensors(OWN[name]))
