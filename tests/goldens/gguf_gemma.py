"""Fields and tensors that llama.cpp's converter makes of a Gemma 3n and a Gemma 4."""

import re
from collections.abc import Iterator, Mapping
from statistics import NormalDist

import numpy as np
from gguf import GGUFWriter

from tests.goldens._case_types import Config

GEMMA_LAYERS = ("gemma3n", "gemma4")
_LAYER = re.compile(r"model\.layers\.(\d+)\.(.+)")
_SCALES = {"router.scale": "ffn_gate_inp.scale", "router.per_expert_scale": "ffn_down_exps.scale"}


def add_gemma_layer_fields(writer: GGUFWriter, config: Config, name: str) -> None:
    """Adds what ``Gemma3NModel`` and ``Gemma4Model`` of the converter add beside sizes."""
    ropes = config["rope_parameters"]
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_rope_freq_base(ropes["full_attention"]["rope_theta"])
    writer.add_rope_freq_base_swa(ropes["sliding_attention"]["rope_theta"])
    writer.add_sliding_window(config["sliding_window"])
    writer.add_sliding_window_pattern([kind == "sliding_attention" for kind in config["layer_types"]])
    writer.add_embedding_length_per_layer_input(config["hidden_size_per_layer_input"])
    writer.add_shared_kv_layers(config["num_kv_shared_layers"])
    if config["final_logit_softcapping"]:
        writer.add_final_logit_softcapping(config["final_logit_softcapping"])
    {"gemma3n": _add_gemma3n, "gemma4": _add_gemma4}[name](writer, config)


def _add_gemma3n(writer: GGUFWriter, config: Config) -> None:
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_key_length(config["head_dim"])
    writer.add_value_length(config["head_dim"])
    writer.add_altup_active_idx(config["altup_active_idx"])
    writer.add_altup_num_inputs(config["altup_num_inputs"])
    shares = config["activation_sparsity_pattern"]
    writer.add_activation_sparsity_scale([NormalDist().inv_cdf(share) if share else -np.inf for share in shares])


def _add_gemma4(writer: GGUFWriter, config: Config) -> None:
    layers, shared = config["num_hidden_layers"], config["num_kv_shared_layers"]
    large, own = _of_full_layers(config)
    for add, size in (
        (writer.add_key_length, large),
        (writer.add_value_length, large),
        (writer.add_rope_dimension_count, large),
        (writer.add_key_length_swa, config["head_dim"]),
        (writer.add_value_length_swa, config["head_dim"]),
        (writer.add_rope_dimension_count_swa, config["head_dim"]),
    ):
        add(size)
    inner, few = config["intermediate_size"], config["num_key_value_heads"]
    wide = config["use_double_wide_mlp"]
    writer.add_feed_forward_length(
        [inner * (2 if index >= layers - shared else 1) for index in range(layers)] if wide else inner
    )
    kinds = config["layer_types"]
    writer.add_head_count_kv([few if kind == "sliding_attention" else own for kind in kinds] if own else few)
    if config["enable_moe_block"]:
        writer.add_expert_count(config["num_experts"])
        writer.add_expert_used_count(config["top_k_experts"])
        writer.add_expert_feed_forward_length(config["moe_intermediate_size"])


def _of_full_layers(config: Config) -> tuple[int, int | None]:
    """H of layers without a window, and their K where it is given."""
    fields = next(iter(config.get("per_layer_config", {}).values()), {})
    return (
        config.get("global_head_dim") or fields["head_dim"],
        config.get("num_global_key_value_heads") or fields.get("num_key_value_heads"),
    )


def gemma_rope_divisors(config: Config) -> np.ndarray:
    """1 for the pairs that RoPE turns in layers without a window, and else 1e30."""
    size, share = _of_full_layers(config)[0], config["rope_parameters"]["full_attention"]["partial_rotary_factor"]
    turned = int(size * share / 2)
    return np.array([1.0] * turned + [1e30] * (size // 2 - turned), np.float32)


def gemma_layer_tensors(stored: Mapping[str, np.ndarray], config: Config) -> Iterator[tuple[str, np.ndarray]]:
    """Tensors as the converter renames and stacks them; names of its own are those in the file already."""
    copies: dict[str, list[np.ndarray]] = {}
    for key, array in stored.items():
        match = _LAYER.fullmatch(key)
        place = re.fullmatch(r"(model\.altup_\w*projections)\.\d+\.weight", key)
        if place is not None:
            copies.setdefault(f"{place[1]}.weight", []).append(array)
        elif match is not None and match[2] in _SCALES:
            yield f"blk.{match[1]}.{_SCALES[match[2]]}", array
        else:
            yield key if key.endswith((".weight", ".bias")) else f"{key}.weight", array
    yield from ((key, np.stack(parts)) for key, parts in copies.items())
    if copies:
        yield from _unread(config)


def _unread(config: Config) -> Iterator[tuple[str, np.ndarray]]:
    """Keys and values of layers that share caches, which published files of Gemma 3n have, and nothing reads."""
    layers, rows = config["num_hidden_layers"], config["num_key_value_heads"] * config["head_dim"]
    for index in range(layers - config["num_kv_shared_layers"], layers):
        for part in "kv":
            yield f"blk.{index}.attn_{part}.weight", np.zeros((rows, config["hidden_size"]), np.float32)
        yield f"blk.{index}.attn_k_norm.weight", np.ones(config["head_dim"], np.float32)
