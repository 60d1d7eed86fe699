"""Fields and tensors that llama.cpp's converter makes of a Qwen3-Next and a Qwen3.5."""

from collections.abc import Iterator, Mapping

import numpy as np
from gguf import GGUFWriter

from tests.goldens._case_types import Config

HYBRIDS = {"qwen3_next": "qwen3next", "qwen3_5_text": "qwen35", "qwen3_5_moe_text": "qwen35moe"}
_REORDERED = ("qwen35", "qwen35moe")
_HEAD = {
    "mtp.fc": "eh_proj",
    "mtp.pre_fc_norm_embedding": "enorm",
    "mtp.pre_fc_norm_hidden": "hnorm",
    "mtp.norm": "shared_head_norm",
}


def add_hybrid_fields(writer: GGUFWriter, config: Config, name: str) -> None:
    """Adds what ``Qwen3NextModel`` of the converter adds beside a Qwen2-MoE's fields; nothing for other models."""
    if name not in HYBRIDS.values():
        return
    heads = config["linear_num_value_heads"]
    writer.add_ssm_conv_kernel(config["linear_conv_kernel_dim"])
    writer.add_ssm_state_size(config["linear_key_head_dim"])
    writer.add_ssm_group_count(config["linear_num_key_heads"])
    writer.add_ssm_time_step_rank(heads)
    writer.add_ssm_inner_size(int(config["linear_value_head_dim"] * heads))
    if "layer_types" in config:
        states = [kind == "linear_attention" for kind in config["layer_types"]]
        writer.add_array(f"{name}.attention.recurrent_layers", states)
    writer.add_full_attention_interval(config.get("full_attention_interval", 4))
    if name in _REORDERED:
        writer.add_rope_dimension_sections(_sections(config))
    if "shared_expert_intermediate_size" in config:
        writer.add_expert_shared_feed_forward_length(config["shared_expert_intermediate_size"])
    if config.get("num_nextn_predict_layers"):
        writer.add_nextn_predict_layers(config["num_nextn_predict_layers"])


def _sections(config: Config) -> list[int]:
    """Returns pairs for time, height and width, which are the same in text: as listed, or all of them for time."""
    rope = config["rope_parameters"]
    listed = rope.get("mrope_section", [int(config["head_dim"] * rope["partial_rotary_factor"]) // 2, 0, 0])
    return [*listed, 0]


def hybrid_tensors(weights: Mapping[str, np.ndarray], config: Config) -> Iterator[tuple[str, np.ndarray]]:
    """Yields the tensors under the converter's own names, in its order of heads."""
    tiled = HYBRIDS[config["model_type"]] in _REORDERED
    for stored, array in weights.items():
        key = _of_head(stored, config)
        module = key.rpartition(".linear_attn.")[2]
        changed = _tiled(module, array, config) if tiled and module != key else array
        if key.endswith("in_proj_qkvz.weight"):
            yield from _parted(key, changed, config)
        elif key.endswith("A_log"):
            yield key, -np.exp(changed.astype(np.float32))
        elif key.endswith("dt_bias"):
            yield key.replace("dt_bias", "dt_proj.bias"), changed.astype(np.float32)
        elif key.endswith("conv1d.weight"):
            yield key, changed.squeeze().astype(np.float32)
        elif key.endswith("norm.weight") and not key.endswith("linear_attn.norm.weight"):
            yield key, changed.astype(np.float32) + np.float32(1)
        else:
            yield key, changed


def _of_head(key: str, config: Config) -> str:
    """Returns the key of a prediction head's tensor: as one of a further layer, or for its own parts the file's."""
    layers = config["num_hidden_layers"]
    module, _, kind = key.rpartition(".")
    if module in _HEAD:
        return f"blk.{layers}.nextn.{_HEAD[module]}.{kind}"
    return key.replace("mtp.layers.0.", f"model.layers.{layers}.")


def _tiled(module: str, array: np.ndarray, config: Config) -> np.ndarray:
    """Reorders value heads from those of a key head together to every n-th."""
    keys = 2 * config["linear_num_key_heads"] * config["linear_key_head_dim"]
    if module.startswith(("in_proj_qkv", "conv1d")):
        return np.concatenate([array[:keys], _turned(array[keys:], config)])
    if module.startswith("out_proj"):
        return np.ascontiguousarray(_turned(array.T, config).T)
    return _turned(array, config) if not module.startswith("norm") else array


def _turned(array: np.ndarray, config: Config) -> np.ndarray:
    groups = config["linear_num_key_heads"]
    per_group = config["linear_num_value_heads"] // groups
    heads = array.reshape(groups, per_group, -1, *array.shape[1:])
    return np.ascontiguousarray(heads.swapaxes(0, 1).reshape(array.shape))


def _parted(key: str, array: np.ndarray, config: Config) -> Iterator[tuple[str, np.ndarray]]:
    """Yields q, k and v of all heads, and z of all, of rows that lie key head after key head."""
    groups, size = config["linear_num_key_heads"], config["linear_key_head_dim"]
    values = config["linear_num_value_heads"] // groups * config["linear_value_head_dim"]
    heads = array.reshape(groups, -1, array.shape[1])
    parts = np.split(heads, [size, 2 * size, 2 * size + values], 1)
    q, k, v, z = (part.reshape(-1, array.shape[1]) for part in parts)
    yield key.replace("in_proj_qkvz", "in_proj_qkv"), np.concatenate([q, k, v])
    yield key.replace("in_proj_qkvz", "in_proj_z"), np.ascontiguousarray(z)
