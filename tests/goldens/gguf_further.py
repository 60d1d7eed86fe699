"""Metadata and tensors of BLOOM, Falcon, MPT, StarCoder and further kinds of Llamas, as llama.cpp has them."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Final

import numpy as np
from gguf import ExpertGatingFuncType, GGUFWriter

from tests.goldens._case_types import Config, GoldenCase
from tests.goldens._shapes import sizes_of
from tests.goldens.published_forms import FORMS
from tests.goldens.weights import stored_weights

GPTS: Final = {"bloom": "bloom", "falcon": "falcon", "mpt": "mpt", "gpt_bigcode": "starcoder"}
ARCHITECTURES: Final = {
    **GPTS,
    "jais2": "jais2",
    "bitnet": "bitnet",
    "minicpm3": "minicpm3",
    "granitemoe": "granitemoe",
    "granitemoeshared": "granitemoe",
    "hunyuan_v1_moe": "hunyuan-moe",
    "exaone_moe": "exaone-moe",
    "afmoe": "afmoe",
    "dbrx": "dbrx",
    "mimo_v2_flash": "mimo2",
}
LAYER_NORMS: Final = ("jais2", "orion", "codeshell")
_Tensors = Iterator[tuple[str, np.ndarray]]


def _heads(config: Config) -> int:
    return next(config[name] for name in ("n_head", "n_heads", "num_attention_heads") if name in config)


def add_gpt_fields(writer: GGUFWriter, config: Config, name: str) -> None:
    """Adds all that these architectures have."""
    layers, hidden, inner, _ = sizes_of(config)
    heads = _heads(config)
    writer.add_block_count(layers)
    writer.add_embedding_length(hidden)
    writer.add_feed_forward_length(inner)
    writer.add_head_count(heads)
    writer.add_layer_norm_eps(config["layer_norm_epsilon"])
    lengths = ("seq_length", "max_seq_len", "n_positions", "max_position_embeddings")
    writer.add_context_length(next((config[length] for length in lengths if length in config), 2048))
    if name == "bloom":
        writer.add_head_count_kv(heads)
    elif name == "falcon":
        writer.add_head_count_kv(config["num_kv_heads"] if config["new_decoder_architecture"] else 1)
        writer.add_tensor_data_layout("jploski")
    elif name == "starcoder":
        writer.add_head_count_kv(1)
    else:
        writer.add_clamp_kqv(config["attn_config"]["clip_qkv"])
        writer.add_max_alibi_bias(config["attn_config"].get("alibi_bias_max", 8))


def gpt_tensors(weights: Mapping[str, np.ndarray], config: Config) -> _Tensors:
    """Yields the tensors with all queries, then all keys, then all values in a fused projection."""
    groups = parts = _heads(config)
    if config["model_type"] == "falcon":
        groups = config["num_kv_heads"] if config["new_decoder_architecture"] else 1
        parts = config["num_attention_heads"] // groups
    else:
        parts = 1
    for name, array in weights.items():
        key = name.removeprefix("transformer.") if config["model_type"] == "bloom" else name
        if ".query_key_value." in key:
            grouped = array.reshape(groups, parts + 2, -1, *array.shape[1:])
            pieces = grouped[:, :parts], grouped[:, parts], grouped[:, parts + 1]
            yield key, np.concatenate([piece.reshape(-1, *array.shape[1:]) for piece in pieces])
        else:
            yield key, array


def add_dbrx_fields(writer: GGUFWriter, config: Config) -> None:
    """Adds all that DBRX has."""
    attention, feed = config["attn_config"], config["ffn_config"]
    writer.add_block_count(config["n_layers"])
    writer.add_embedding_length(config["d_model"])
    writer.add_context_length(config["max_seq_len"])
    writer.add_feed_forward_length(feed["ffn_hidden_size"])
    writer.add_head_count(config["n_heads"])
    writer.add_head_count_kv(attention["kv_n_heads"])
    writer.add_rope_freq_base(attention["rope_theta"])
    writer.add_clamp_kqv(attention["clip_qkv"])
    writer.add_expert_count(feed["moe_num_experts"])
    writer.add_expert_used_count(feed["moe_top_k"])
    writer.add_layer_norm_eps(1e-5)


def _dbrx(weights: Mapping[str, np.ndarray], config: Config) -> _Tensors:
    """Yields the tensors with experts apart, the last projection output-major."""
    experts = config["ffn_config"]["moe_num_experts"]
    for key, array in weights.items():
        projection = key.rpartition(".")[2]
        if ".ffn.experts.mlp." not in key:
            yield key, array
            continue
        apart = array.reshape(experts, -1, array.shape[1])
        yield f"{key}.weight", np.ascontiguousarray(apart.swapaxes(1, 2)) if projection == "w2" else apart


def _codeshell(weights: Mapping[str, np.ndarray], config: Config) -> _Tensors:
    """Yields the tensors with queries, keys and values in one."""
    del config
    for key, array in weights.items():
        if ".self_attn." not in key or ".o_proj." in key:
            yield key, array
        elif ".q_proj." in key:
            parts = [weights[key.replace("q_proj", f"{part}_proj")] for part in "qkv"]
            layer, kind = key.split(".")[2], key.rpartition(".")[2]
            yield f"blk.{layer}.attn_qkv.{kind}", np.concatenate(parts)


def add_further_fields(writer: GGUFWriter, config: Config, name: str) -> None:
    """Adds what these architectures have beside a Llama's fields."""
    if name == "minicpm3":
        writer.add_q_lora_rank(config["q_lora_rank"])
        writer.add_kv_lora_rank(config["kv_lora_rank"])
        writer.add_key_length(config["qk_nope_head_dim"] + config["qk_rope_head_dim"])
    elif name in _SECTIONS:
        size = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
        writer.add_rope_dimension_sections([size // 2 - 2, 1, 1, 0])
        if name.startswith("qwen3vl"):
            writer.add_num_deepstack_layers(0)
    elif name == "mimo2":
        kinds = [kind == "sliding_attention" for kind in config["layer_types"]]
        writer.add_head_count_kv([config["num_key_value_heads"] * (2 if slides else 1) for slides in kinds])
        writer.add_value_length(config["v_head_dim"])
        writer.add_sliding_window(config["sliding_window"])
        writer.add_sliding_window_pattern(kinds)
        writer.add_rope_freq_base_swa(config["rope_parameters"]["sliding_attention"]["rope_theta"])
        writer.add_expert_count(config["n_routed_experts"])
        writer.add_expert_used_count(config["num_experts_per_tok"])
        writer.add_expert_gating_func(ExpertGatingFuncType.SIGMOID)
    elif name == "granitemoe" and config.get("shared_intermediate_size"):
        writer.add_expert_shared_feed_forward_length(config["shared_intermediate_size"])
    elif name == "hunyuan-moe":
        writer.add_expert_shared_count(1)
        writer.add_expert_feed_forward_length(config["intermediate_size"])
        writer.add_expert_shared_feed_forward_length(config["intermediate_size"])
    elif name in ("exaone-moe", "afmoe"):
        writer.add_expert_shared_count(config["num_shared_experts"])
        writer.add_expert_gating_func(ExpertGatingFuncType.SIGMOID)
        scale, dense = ("routed_scaling_factor", "first_k_dense_replace") if name == "exaone-moe" else _AFMOE
        writer.add_expert_weights_scale(config[scale])
        writer.add_leading_dense_block_count(config[dense])
        writer.add_expert_weights_norm(config.get("norm_topk_prob", True))
        writer.add_sliding_window(config["sliding_window"])
        if name == "exaone-moe":
            writer.add_sliding_window_pattern([kind == "sliding_attention" for kind in config["layer_types"]])


_SECTIONS: Final = ("qwen2vl", "qwen3vl", "qwen3vlmoe", "paddleocr")
_AFMOE: Final = ("route_scale", "num_dense_layers")


def _granite_moe(weights: Mapping[str, np.ndarray], config: Config) -> _Tensors:
    """Yields the tensors with gate and up projections apart."""
    del config
    for key, array in weights.items():
        if not key.endswith(".input_linear.weight"):
            yield key, array
            continue
        axis = array.ndim - 2
        gate, up = (np.ascontiguousarray(part) for part in np.split(array, 2, axis))
        layer = key.split(".")[2]
        kind = "exps" if ".block_sparse_moe." in key else "shexp"
        yield f"blk.{layer}.ffn_gate_{kind}.weight", gate
        yield f"blk.{layer}.ffn_up_{kind}.weight", up


def _corrected(weights: Mapping[str, np.ndarray], config: Config) -> _Tensors:
    """Yields the tensors with a router's correction and BitNet's norms under the converter's names."""
    del config
    names = {
        "e_score_correction_bias": "e_score_correction.bias",
        "expert_bias": "expert_bias.bias",
        "self_attn.attn_sub_norm": "self_attn.inner_attn_ln",
        "mlp.ffn_sub_norm": "mlp.ffn_layernorm",
        "self_attn.attention_sink_bias": "self_attn.sinks.weight",
    }
    for key, array in weights.items():
        for part, stored in names.items():
            key = key.replace(part, stored)
        yield key, array


RENAMED: Final[dict[str, Callable[[Mapping[str, np.ndarray], Config], _Tensors]]] = {
    **dict.fromkeys(("bloom", "falcon"), gpt_tensors),
    "granitemoe": _granite_moe,
    **dict.fromkeys(("exaone-moe", "afmoe", "bitnet", "mimo2"), _corrected),
    "dbrx": _dbrx,
    "codeshell": _codeshell,
}


OTHER_NAMES: Final = {
    "internlm2": "llama_gqa",
    "xverse": "llama_gqa",
    "exaone": "llama_llama3",
    "orion": "stablelm_whole",
    "minicpm": "granite_plain_scores",
    "qwen": "qwen2_full_4x",
    "deci": "llama_gqa",
    "pangu-embedded": "llama_attention_biases",
    "qwen2vl": "qwen2_full_4x",
    "qwen3vl": "qwen3",
    "qwen3vlmoe": "qwen3_moe",
    "paddleocr": "llama_gqa",
    "codeshell": "starcoder2_open",
}
"""Cases whose models are stored as these architectures, too."""


def other_name(architecture: str, case: GoldenCase) -> tuple[GoldenCase, dict[str, np.ndarray]]:
    """Returns a case with the fields of an architecture, and its weights under the names that the converter knows."""
    weights = {key: array.astype(np.float32) for key, array in stored_weights(case).items()}
    if architecture != "qwen":
        return case, weights
    further = {"num_key_value_heads": case.config["num_attention_heads"], "sliding_window": None}
    inner = 2 * case.config["intermediate_size"]
    renamed = FORMS["QWenLMHeadModel"][1](weights, case.config)
    return replace(case, config={**case.config, **further, "intermediate_size": inner}, stored="f32"), renamed
