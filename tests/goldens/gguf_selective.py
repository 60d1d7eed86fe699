"""Mamba of the first version, Falcon-Mamba and Jamba as llama.cpp's converter changes them."""

from collections.abc import Iterator, Mapping
from typing import Final

import numpy as np
from gguf import GGUFWriter

from tests.goldens._case_types import Config

SELECTIVE: Final = {"mamba": "mamba", "falcon_mamba": "mamba", "jamba": "jamba"}


def add_mamba_fields(writer: GGUFWriter, config: Config) -> None:
    """Writes all fields of a Mamba or a Falcon-Mamba."""
    writer.add_context_length(2**20)
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(0)
    writer.add_head_count(0)
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_layer_norm_rms_eps(config["layer_norm_epsilon"])
    _add_ssm(writer, config["hidden_size"], [config[name] for name in ("expand", "state_size", "time_step_rank")])
    writer.add_ssm_conv_kernel(config["conv_kernel"])
    writer.add_ssm_dt_b_c_rms(config["model_type"] == "falcon_mamba")


def add_jamba_fields(writer: GGUFWriter, config: Config) -> None:
    """Writes the fields of a Jamba besides those of most models."""
    layers, kv_heads = config["num_hidden_layers"], config["num_key_value_heads"]
    attends = [index % config["attn_layer_period"] == config["attn_layer_offset"] for index in range(layers)]
    writer.add_head_count_kv([kv_heads if attending else 0 for attending in attends])
    _add_ssm(writer, config["hidden_size"], [config[f"mamba_{name}"] for name in ("expand", "d_state", "dt_rank")])
    writer.add_ssm_conv_kernel(config["mamba_d_conv"])


def _add_ssm(writer: GGUFWriter, hidden: int, sizes: list[int]) -> None:
    writer.add_ssm_inner_size(sizes[0] * hidden)
    writer.add_ssm_state_size(sizes[1])
    writer.add_ssm_time_step_rank(sizes[2])


def selective_tensors(weights: Mapping[str, np.ndarray], config: Config) -> Iterator[tuple[str, np.ndarray]]:
    """Yields the tensors under the converter's own names."""
    del config
    for key, array in weights.items():
        if key.endswith("conv1d.weight"):
            yield key, array.astype(np.float32).reshape(array.shape[0], -1)
        elif key.endswith(".A_log"):
            yield key, -np.exp(array.astype(np.float32))
        else:
            yield key.replace("feed_forward.experts", "mlp.experts"), array
