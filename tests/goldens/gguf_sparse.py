"""Metadata and tensors of mixtures of experts, as llama.cpp's converter writes them."""

from collections.abc import Iterator, Mapping

import numpy as np
from gguf import ExpertGatingFuncType, GGUFWriter

from tests.goldens._case_types import Config

ARCHITECTURES = {
    "glm4_moe": "glm4moe", "qwen2_moe": "qwen2moe", "minimax_m2": "minimax-m2", "ernie4_5_moe": "ernie4_5-moe",
    "phimoe": "phimoe", "llama4_text": "llama4", "olmoe": "olmoe", "dots1": "dots1",
}  # fmt: skip
_HEADS_PARTS = ("eh_proj", "enorm", "hnorm", "shared_head")


def add_sparse_fields(writer: GGUFWriter, config: Config, name: str) -> None:
    """Adds what these architectures have beside counts and sizes of experts."""
    if name == "glm4moe":
        _add_glm(writer, config)
    elif name == "qwen2moe":
        writer.add_expert_shared_feed_forward_length(config["shared_expert_intermediate_size"])
    elif name == "minimax-m2":
        writer.add_expert_feed_forward_length(config["intermediate_size"])
        writer.add_expert_gating_func(ExpertGatingFuncType.SIGMOID)
    elif name == "ernie4_5-moe":
        _add_ernie(writer, config)
    elif name == "dots1":
        _add_dots(writer, config)
    elif name == "llama4":
        writer.add_interleave_moe_layer_step(config["interleave_moe_layer_step"])
        writer.add_expert_feed_forward_length(config["intermediate_size"])


def _add_glm(writer: GGUFWriter, config: Config) -> None:
    _add_dots(writer, config)
    writer.add_expert_group_count(config["n_group"])
    writer.add_expert_group_used_count(config["topk_group"])
    writer.add_nextn_predict_layers(config["num_nextn_predict_layers"])


def _add_dots(writer: GGUFWriter, config: Config) -> None:
    writer.add_expert_count(config["n_routed_experts"])
    writer.add_expert_used_count(config["num_experts_per_tok"])
    writer.add_leading_dense_block_count(config["first_k_dense_replace"])
    writer.add_expert_shared_count(config["n_shared_experts"])
    writer.add_expert_weights_scale(config["routed_scaling_factor"])
    writer.add_expert_weights_norm(config["norm_topk_prob"])
    writer.add_expert_gating_func(ExpertGatingFuncType.SIGMOID)


def _add_ernie(writer: GGUFWriter, config: Config) -> None:
    shared = config["moe_num_shared_experts"]
    writer.add_expert_count(config["moe_num_experts"])
    writer.add_expert_used_count(config["moe_k"])
    writer.add_interleave_moe_layer_step(config["moe_layer_interval"])
    writer.add_leading_dense_block_count(config["moe_layer_start_index"])
    writer.add_expert_shared_count(shared)
    writer.add_expert_shared_feed_forward_length(shared * config["moe_intermediate_size"])


def corrected_tensors(weights: Mapping[str, np.ndarray], config: Config) -> Iterator[tuple[str, np.ndarray]]:
    """Yields the tensors with the router's correction and a prediction head's parts under the converter's names."""
    further = f"model.layers.{config['num_hidden_layers']}."
    for key, array in weights.items():
        module, _, _ = key.removeprefix(further).partition(".")
        if key.startswith(further) and module in _HEADS_PARTS:
            yield (
                f"blk.{config['num_hidden_layers']}.nextn.{key.removeprefix(further).replace('head.n', 'head_n')}",
                array,
            )
        else:
            yield key.replace("e_score_correction_bias", "e_score_correction.bias"), array


def llama4_tensors(weights: Mapping[str, np.ndarray], config: Config) -> Iterator[tuple[str, np.ndarray]]:
    """Yields the tensors with experts output-major, gate and up apart."""
    del config
    for key, array in weights.items():
        if ".experts." not in key:
            yield key, array
            continue
        outputs = np.ascontiguousarray(array.swapaxes(1, 2))
        if key.endswith("down_proj"):
            yield f"{key}.weight", outputs
        else:
            for name, part in zip(("gate_proj", "up_proj"), np.split(outputs, 2, axis=1), strict=True):
                yield f"{key.replace('gate_up_proj', name)}.weight", np.ascontiguousarray(part)


RENAMED = {
    **dict.fromkeys(("glm4moe", "minimax-m2", "ernie4_5-moe", "dots1"), corrected_tensors),
    "llama4": llama4_tensors,
}
