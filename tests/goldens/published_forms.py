"""Golden cases under names of families that only their authors' code has: keys, shapes and fields of config.json."""

from collections.abc import Callable
from typing import Final

import numpy as np

from tests.goldens._case_types import Config

Weights = dict[str, np.ndarray]


def _renamed(weights: Weights, names: dict[str, str]) -> Weights:
    renamed: Weights = {}
    for key, array in weights.items():
        for part, stored in names.items():
            key = key.replace(part, stored)
        renamed[key] = array
    return renamed


def fused(weights: Weights, name: str, join: Callable[..., np.ndarray]) -> Weights:
    """Returns the weights with queries, keys and values of each layer as one tensor ``name``."""
    joined = dict(weights)
    for key in [key for key in weights if ".q_proj." in key]:
        parts = [joined.pop(key.replace("q_proj", part)) for part in ("q_proj", "k_proj", "v_proj")]
        joined[key.replace("q_proj", name)] = join(*parts)
    return joined


def side_by_side(*parts: np.ndarray) -> np.ndarray:
    """Returns the rows of all parts."""
    return np.concatenate(parts)


def _sizes(config: Config, *names: str) -> Config:
    """Returns fields of a case's config.json, and those that every decoder has."""
    usual = ("hidden_size", "num_attention_heads", "num_hidden_layers", "vocab_size", "intermediate_size")
    return {name: config[name] for name in (*usual, *names) if name in config}


_LLAMA = ("num_key_value_heads", "rms_norm_eps", "max_position_embeddings", "hidden_act")


def llama_fields(config: Config) -> Config:
    """Returns the fields of a Llama with a case's sizes."""
    rope = config.get("rope_parameters", {})
    return {**_sizes(config, *_LLAMA), "rope_theta": rope.get("rope_theta", 10000.0), "tie_word_embeddings": False}


def _internlm2(weights: Weights, config: Config) -> Weights:
    kv_heads, head = config["num_key_value_heads"], config["head_dim"]

    def by_group(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
        groups = [part.reshape(kv_heads, -1, head, *part.shape[1:]) for part in (q, k, v)]
        return np.concatenate(groups, 1).reshape(-1, *q.shape[1:])

    names = {
        "embed_tokens": "tok_embeddings",
        "lm_head": "output",
        "input_layernorm": "attention_norm",
        "post_attention_layernorm": "ffn_norm",
        "self_attn.o_proj": "attention.wo",
        "self_attn": "attention",
        "mlp.gate_proj": "feed_forward.w1",
        "mlp.up_proj": "feed_forward.w3",
        "mlp.down_proj": "feed_forward.w2",
    }
    return _renamed(fused(weights, "wqkv", by_group), names)


def _qwen(weights: Weights, config: Config) -> Weights:
    """Returns the weights of a Qwen, which has a head of keys and values for each of queries."""
    kv_heads, count = config["num_key_value_heads"], config["num_attention_heads"] // config["num_key_value_heads"]

    def repeated(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
        parts = [np.repeat(part.reshape(kv_heads, -1, *part.shape[1:]), count, 0) for part in (k, v)]
        return np.concatenate([q, *(part.reshape(q.shape) for part in parts)])

    names = {
        "model.embed_tokens": "transformer.wte",
        "model.norm": "transformer.ln_f",
        "model.layers": "transformer.h",
        "input_layernorm": "ln_1",
        "post_attention_layernorm": "ln_2",
        "self_attn.o_proj": "attn.c_proj",
        "self_attn": "attn",
        "gate_proj": "w2",
        "up_proj": "w1",
        "down_proj": "c_proj",
    }
    head = {"lm_head.weight": weights["model.embed_tokens.weight"]}
    return _renamed(fused(weights | head, "c_attn", repeated), names)


def _exaone(weights: Weights, config: Config) -> Weights:
    del config
    names = {
        "model.embed_tokens": "transformer.wte",
        "model.norm": "transformer.ln_f",
        "model.layers": "transformer.h",
        "input_layernorm": "ln_1",
        "post_attention_layernorm": "ln_2",
        "self_attn.o_proj": "attn.attention.out_proj",
        "self_attn": "attn.attention",
        "gate_proj": "c_fc_0",
        "up_proj": "c_fc_1",
        "down_proj": "c_proj",
    }
    return _renamed(weights, names)


def _chatglm(weights: Weights, config: Config) -> Weights:
    del config
    names = {
        "model.embed_tokens": "transformer.embedding.word_embeddings",
        "model.norm": "transformer.encoder.final_layernorm",
        "lm_head": "transformer.output_layer",
        "model.layers": "transformer.encoder.layers",
        "self_attn.o_proj": "self_attention.dense",
        "self_attn": "self_attention",
        "mlp.gate_up_proj": "mlp.dense_h_to_4h",
        "mlp.down_proj": "mlp.dense_4h_to_h",
    }
    return _renamed(fused(weights, "query_key_value", side_by_side), names)


def _as_they_are(weights: Weights, config: Config) -> Weights:
    del config
    return weights


def _chatglm_config(config: Config) -> Config:
    return {
        "hidden_size": config["hidden_size"],
        "num_attention_heads": config["num_attention_heads"],
        "num_layers": config["num_hidden_layers"],
        "padded_vocab_size": config["vocab_size"],
        "ffn_hidden_size": config["intermediate_size"],
        "kv_channels": config["head_dim"],
        "multi_query_attention": True,
        "multi_query_group_num": config["num_key_value_heads"],
        "layernorm_epsilon": config["rms_norm_eps"],
        "add_qkv_bias": True,
        "rope_ratio": config["rope_parameters"]["rope_theta"] / 10000.0,
        "seq_length": 64,
    }


def _qwen_config(config: Config) -> Config:
    return {
        **_sizes(config),
        "intermediate_size": 2 * config["intermediate_size"],
        "kv_channels": config["hidden_size"] // config["num_attention_heads"],
        "layer_norm_epsilon": config["rms_norm_eps"],
        "rotary_emb_base": config["rope_theta"],
        "seq_length": 64,
        "use_logn_attn": True,
        "use_dynamic_ntk": True,
        "no_bias": True,
        "tie_word_embeddings": False,
    }


def _exaone_config(config: Config) -> Config:
    values = {name: value for name, value in llama_fields(config).items() if name != "num_hidden_layers"}
    eps = {"layer_norm_epsilon": config["rms_norm_eps"], "activation_function": "silu"}
    return {**values, "num_layers": config["num_hidden_layers"], "head_dim": config["head_dim"], **eps}


def _minicpm_config(config: Config) -> Config:
    layers, hidden = config["num_hidden_layers"], config["hidden_size"]
    scales = {"scale_emb": config["embedding_multiplier"], "scale_depth": config["residual_multiplier"] * layers**0.5}
    return {**llama_fields(config), **scales, "dim_model_base": round(hidden / config["logits_scaling"])}


def _orion_config(config: Config) -> Config:
    return {**llama_fields(config), "rms_norm_eps": config["layer_norm_eps"]}


def _deepseek(weights: Weights, config: Config) -> Weights:
    """Returns the weights of an Aria with experts one by one, output-major."""
    del config
    apart: Weights = {}
    for key, array in _renamed(weights, {"mlp.router": "mlp.gate"}).items():
        above, _, part = key.partition("experts.fc")
        if not part or "shared" in key:
            apart[key] = array
            continue
        for index, expert in enumerate(array):
            names = ("gate_proj", "up_proj") if part.startswith("1") else ("down_proj",)
            for name, rows in zip(names, np.split(expert.T, len(names)), strict=True):
                apart[f"{above}experts.{index}.{name}.weight"] = rows
    return apart


_BAILING = {
    "embed_tokens": "word_embeddings",
    "self_attn.o_proj": "attention.dense",
    "self_attn.q_norm": "attention.query_layernorm",
    "self_attn.k_norm": "attention.key_layernorm",
    "self_attn": "attention",
    "e_score_correction_bias": "expert_bias",
}


def _bailing(weights: Weights, config: Config) -> Weights:
    return _renamed(fused(_deepseek(weights, config), "query_key_value", side_by_side), _BAILING)


def _bailing_v2(weights: Weights, config: Config) -> Weights:
    return _renamed(fused(weights, "query_key_value", side_by_side), _BAILING)


def _deepseek_config(config: Config) -> Config:
    return {
        **llama_fields(config),
        "moe_intermediate_size": config["intermediate_size"],
        "n_routed_experts": config["moe_num_experts"],
        "n_shared_experts": config["moe_num_shared_experts"],
        "norm_topk_prob": True,
        "num_experts_per_tok": config["moe_topk"],
    }


def _bailing_config(config: Config) -> Config:
    counts = {"num_experts": config["moe_num_experts"], "num_shared_experts": config["moe_num_shared_experts"]}
    sizes = {"moe_intermediate_size": config["intermediate_size"], "num_experts_per_tok": config["moe_topk"]}
    return {**llama_fields(config), **counts, **sizes, "norm_topk_prob": True, "use_bias": False}


_ROUTING = (
    "first_k_dense_replace", "moe_intermediate_size", "n_group", "norm_topk_prob", "num_experts_per_tok",
    "num_nextn_predict_layers", "routed_scaling_factor", "topk_group", "use_qk_norm", "head_dim",
)  # fmt: skip


def _bailing_v2_config(config: Config) -> Config:
    counts = {"num_experts": config["n_routed_experts"], "num_shared_experts": config["n_shared_experts"]}
    share = {"partial_rotary_factor": config["rope_parameters"]["partial_rotary_factor"]}
    biases = {"use_qkv_bias": config["attention_bias"], "use_bias": False}
    return {**llama_fields(config), **_sizes(config, *_ROUTING), **counts, **share, **biases}


_OPENELM = {
    "model.embed_tokens": "transformer.token_embeddings",
    "model.norm": "transformer.norm",
    "model.layers": "transformer.layers",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.o_proj": "attn.out_proj",
    "self_attn": "attn",
    "mlp.down_proj": "ffn.proj_2",
    "mlp.proj_1": "ffn.proj_1",
}


def _openelm(weights: Weights, config: Config) -> Weights:
    del config
    joined = fused(weights, "qkv_proj", side_by_side)
    for key in [key for key in joined if ".gate_proj." in key]:
        gate, up = joined.pop(key), joined.pop(key.replace("gate_proj", "up_proj"))
        joined[key.replace("gate_proj", "proj_1")] = side_by_side(gate, up)
    return _renamed(joined, _OPENELM)


def _openelm_config(config: Config) -> Config:
    layers = config["num_hidden_layers"]
    return {
        "activation_fn_name": "swish",
        "ffn_dim_divisor": 8,
        "ffn_multipliers": [config["intermediate_size"] / config["hidden_size"]] * layers,
        "ffn_with_glu": True,
        "head_dim": config["head_dim"],
        "max_context_length": 64,
        "model_dim": config["hidden_size"],
        "normalization_layer_name": "rms_norm",
        "normalize_qk_projections": True,
        "num_kv_heads": [config["num_key_value_heads"]] * layers,
        "num_query_heads": [config["num_attention_heads"]] * layers,
        "num_transformer_layers": layers,
        "rope_freq_constant": config["rope_parameters"]["rope_theta"],
        "share_input_output_layers": config["tie_word_embeddings"],
        "vocab_size": config["vocab_size"],
    }


def _yi(weights: Weights, config: Config) -> Weights:
    del config
    return _renamed(weights, {"input_layernorm": "ln1", "post_attention_layernorm": "ln2"})


def _as_it_is(config: Config) -> Config:
    return config


def _epoch_config(config: Config) -> Config:
    own = {"norm_eps": config["layer_norm_eps"], "rope_pct": config["rope_parameters"]["partial_rotary_factor"]}
    return {**llama_fields(config), **own, "use_qkv_bias": config["use_qkv_bias"]}


FORMS: Final[dict[str, tuple[str, Callable[[Weights, Config], Weights], Callable[[Config], Config]]]] = {
    "InternLM2ForCausalLM": ("llama_gqa", _internlm2, lambda c: {**llama_fields(c), "bias": False}),
    "InternLMForCausalLM": ("llama_attention_bias_batch", _as_they_are, lambda c: {**llama_fields(c), "bias": True}),
    "BaichuanForCausalLM": ("llama_mha", lambda w, c: fused(w, "W_pack", side_by_side), llama_fields),
    "BaiChuanForCausalLM": ("llama_mha", lambda w, c: fused(w, "W_pack", side_by_side), llama_fields),
    "QWenLMHeadModel": ("qwen2_full_4x", _qwen, _qwen_config),
    "ExaoneForCausalLM": ("llama_gqa", _exaone, _exaone_config),
    "OrionForCausalLM": ("stablelm_whole", _as_they_are, _orion_config),
    "XverseForCausalLM": ("llama_gqa", _as_they_are, llama_fields),
    "AquilaForCausalLM": ("llama_gqa", _as_they_are, llama_fields),
    "Emu3ForCausalLM": ("llama_gqa", _as_they_are, lambda c: {"model_type": "emu3", "text_config": llama_fields(c)}),
    "MiniCPMForCausalLM": ("granite_plain_scores", _as_they_are, _minicpm_config),
    "ChatGLMModel": ("glm", _chatglm, _chatglm_config),
    "ChatGLMForConditionalGeneration": ("glm", _chatglm, _chatglm_config),
    "DeepseekForCausalLM": ("aria_text", _deepseek, _deepseek_config),
    "BailingMoeForCausalLM": ("aria_text", _bailing, _bailing_config),
    "BailingMoeV2ForCausalLM": ("glm4_moe", _bailing_v2, _bailing_v2_config),
    "OpenELMForCausalLM": ("qwen3", _openelm, _openelm_config),
    "LLaMAForCausalLM": ("llama_mha", _as_they_are, llama_fields),
    "SkyworkForCausalLM": ("llama_gqa", _as_they_are, llama_fields),
    "NanbeigeForCausalLM": ("llama_gqa", _as_they_are, llama_fields),
    "YiForCausalLM": ("llama_gqa", _yi, llama_fields),
    "MiMoForCausalLM": ("qwen2_full_4x", _as_they_are, _as_it_is),
    "PhiMoEForCausalLM": ("phimoe", _as_they_are, _as_it_is),
    "Ernie4_5_ForCausalLM": ("ernie4_5", _as_they_are, _as_it_is),
    "RWForCausalLM": ("falcon", _as_they_are, _as_it_is),
    "MPTForCausalLM": ("mpt", _as_they_are, _as_it_is),
    "StableLMEpochForCausalLM": ("stablelm", _as_they_are, _epoch_config),
}
"""Case, its weights as the architecture stores them, and its config.json, by architecture."""
