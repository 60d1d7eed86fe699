"""Models with states as llama.cpp's converter changes them: names, shapes, ``A``, folded scales, and metadata."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from gguf import ExpertGatingFuncType, GGUFWriter

from tests.goldens._case_types import Config

STATE_KINDS = {
    "lfm2": "lfm2", "lfm2_moe": "lfm2moe", "mamba2": "mamba2", "granitemoehybrid": "granitehybrid",
    "falcon_h1": "falcon-h1",
}  # fmt: skip


def state_tensors(weights: Mapping[str, np.ndarray], config: Config) -> Iterator[tuple[str, np.ndarray]]:
    """Yields the tensors under the converter's own names."""
    groups = config.get("n_groups") or config.get("mamba_n_groups") or 1
    scales = _scales(config) if config["model_type"] == "falcon_h1" else {}
    for key, array in weights.items():
        scale = next((scale for part, scale in scales.items() if part in key and "bias" not in key), None)
        if scale is not None:
            array = (array * scale).astype(array.dtype)
        if key.endswith(("conv1d.weight", "conv.conv.weight")):
            yield key, array.astype(np.float32).reshape(array.shape[0], -1)
        elif key.endswith(".A_log"):
            yield key, -np.exp(array.astype(np.float32)).reshape(-1, 1)
        elif key.endswith((".mixer.D", ".mamba.D")):
            yield key, array.astype(np.float32).reshape(-1, 1)
        elif key.endswith((".mixer.norm.weight", ".mamba.norm.weight")):
            yield key, array.astype(np.float32).reshape(groups, -1)
        elif key.endswith(".dt_bias"):
            yield key.replace(".dt_bias", ".dt_proj.bias"), array
        elif "expert_bias" in key:
            yield f"{key}.bias", array
        elif ".experts." in key and config["model_type"] == "lfm2_moe":
            yield key.replace("feed_forward", "mlp"), array
        else:
            yield from _halves(key, array, config)


def _halves(key: str, array: np.ndarray, config: Config) -> Iterator[tuple[str, np.ndarray]]:
    """Yields gate and up apart, where Granite stores them as one."""
    if not key.endswith("input_linear.weight"):
        if key.endswith("shared_mlp.output_linear.weight") and not config["num_local_experts"]:
            key = key.replace("shared_mlp.output_linear", "mlp.down_proj")
        yield key, array
        return
    halves = np.split(array, 2, axis=array.ndim - 2)
    routed = "block_sparse_moe" in key
    place = "mlp.experts" if routed else "mlp.shared_experts" if config["num_local_experts"] else "mlp"
    for name, half in zip(("gate_proj", "up_proj"), halves, strict=True):
        module = key.rpartition(".block_sparse_moe" if routed else ".shared_mlp")[0]
        yield f"{module}.{place}.{name}.weight", np.ascontiguousarray(half)


def _scales(config: Config) -> dict[str, Any]:
    """Factors that Falcon-H1's converter multiplies into weights, by part of the key: the first that matches."""
    inner, shared = config["mamba_d_ssm"], config["mamba_n_groups"] * config["mamba_d_state"]
    sizes = (inner, inner, shared, shared, config["mamba_n_heads"])
    columns = np.concatenate([np.full(n, s, np.float32) for n, s in zip(sizes, config["ssm_multipliers"], strict=True)])
    given = config["attention_in_multiplier"]
    return {
        "down_proj": config["mlp_multipliers"][1],
        "gate_proj": config["mlp_multipliers"][0],
        "k_proj": config["key_multiplier"] * given,
        "q_proj": given,
        "v_proj": given,
        "o_proj": config["attention_out_multiplier"],
        "out_proj": config["ssm_out_multiplier"],
        "in_proj": config["ssm_in_multiplier"] * columns[:, None],
        "lm_head": config["lm_head_multiplier"],
        "embed_tokens": config["embedding_multiplier"],
    }


def add_mamba2_fields(writer: GGUFWriter, config: Config) -> None:
    """Writes all fields of a Mamba-2."""
    writer.add_context_length(2**20)
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(0)
    writer.add_head_count(0)
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_layer_norm_rms_eps(config["layer_norm_epsilon"])
    add_ssm(writer, [config[key] for key in ("num_heads", "head_dim", "n_groups", "state_size", "conv_kernel")])


def add_state_fields(writer: GGUFWriter, config: Config, name: str) -> None:
    """Writes the fields of other kinds, besides those of most models."""
    kv_heads = config["num_key_value_heads"]
    if name == "falcon-h1":
        writer.add_head_count_kv(kv_heads)
    else:
        attends = ("attention", "full_attention")
        writer.add_head_count_kv([kv_heads if kind in attends else 0 for kind in config["layer_types"]])
    if name.startswith("lfm2"):
        writer.add_shortconv_l_cache(config["conv_L_cache"])
        if name == "lfm2moe":
            writer.add_leading_dense_block_count(config["num_dense_layers"])
            writer.add_expert_gating_func(ExpertGatingFuncType.SIGMOID)
        return
    parts = ("n_heads", "d_head", "n_groups", "d_state", "d_conv")
    add_ssm(writer, [config[f"mamba_{part}"] for part in parts])
    if name == "granitehybrid":
        writer.add_expert_shared_feed_forward_length(config["shared_intermediate_size"])
        writer.add_rope_scaling_finetuned(config["position_embedding_type"] == "rope")


def add_ssm(writer: GGUFWriter, sizes: list[int]) -> None:
    """Writes the sizes of a Mamba-2: heads, their size, groups, state, taps."""
    heads, size, groups, state, taps = sizes
    writer.add_ssm_conv_kernel(taps)
    writer.add_ssm_inner_size(heads * size)
    writer.add_ssm_state_size(state)
    writer.add_ssm_time_step_rank(heads)
    writer.add_ssm_group_count(groups)
