"""Metadata of dense models that are nearly a Llama, as llama.cpp's converter writes them."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from gguf import GGUFWriter

from tests.goldens._case_types import Config

UNGATED = {"phi": "phi2", "starcoder2": "starcoder2", "nemotron": "nemotron", "arcee": "arcee"}
"""Architectures of families without a gate in the feed-forward, by model type."""
LAYER_NORMS = ("olmo", "command-r", "cohere2", "phi2", "starcoder2", "nemotron")
WINDOWS = ("olmo2", "exaone4", "cohere2")
_BY_TYPES = ("olmo2", "exaone4")
_HEAD_NORM = re.compile(r"(.*\.[qk]_layernorm)\.norms\.(\d+)\.weight")


def layer_norm_eps(config: Config) -> float:
    """Returns the eps of layer norms, under the family's name of it; OLMo 1 names none."""
    return next((config[name] for name in ("layer_norm_eps", "norm_epsilon", "norm_eps") if name in config), 1e-5)


def add_llama_kind_fields(writer: GGUFWriter, config: Config, name: str, rope: Mapping[str, Any]) -> None:
    """Adds what these architectures have beside a Llama's fields."""
    if config.get("logit_scale"):
        writer.add_logit_scale(config["logit_scale"])
    if name == "olmo":
        writer.add_clamp_kqv(config["clip_qkv"])
    if name in _BY_TYPES and config.get("sliding_window"):
        layers = config["num_hidden_layers"]
        types = config.get("layer_types") or [
            "full_attention" if (i + 1) % 4 == 0 else "sliding_attention" for i in range(layers)
        ]
        writer.add_sliding_window_pattern([kind == "sliding_attention" for kind in types])
    if rope["rope_type"] == "yarn" and rope.get("attention_factor"):
        writer.add_rope_scaling_yarn_attn_factor(rope["attention_factor"])
    if name == "mistral3":
        writer.add_rope_scaling_yarn_log_mul(rope["mscale_all_dim"])
        writer.add_attn_temperature_scale(rope["llama_4_scaling_beta"])


def add_activation_numbers(writer: GGUFWriter, weights: Mapping[str, np.ndarray]) -> None:
    """Adds the numbers of Apertus's activations, one of each layer, as ``ApertusModel`` of the converter does."""
    for name, add in {
        "alpha_n": writer.add_xielu_alpha_n,
        "alpha_p": writer.add_xielu_alpha_p,
        "beta": writer.add_xielu_beta,
        "eps": writer.add_xielu_eps,
    }.items():
        numbers = [float(array.item()) for key, array in weights.items() if key.endswith(f".act_fn.{name}")]
        if numbers:
            add(numbers)


def apertus_tensors(weights: Mapping[str, np.ndarray], config: Config) -> Iterator[tuple[str, np.ndarray]]:
    """Yields the weights without the numbers of activations, which are metadata."""
    del config
    yield from ((key, array) for key, array in weights.items() if ".act_fn." not in key)


def stablelm_tensors(weights: Mapping[str, np.ndarray], config: Config) -> Iterator[tuple[str, np.ndarray]]:
    """Yields the weights with the norms of heads stacked, as ``StableLMModel`` of the converter does."""
    del config
    heads: dict[str, list[np.ndarray]] = {}
    for key, array in weights.items():
        if match := _HEAD_NORM.fullmatch(key):
            assert len(heads.setdefault(match[1], [])) == int(match[2]), key
            heads[match[1]].append(array)
        else:
            yield key, array
    yield from ((f"{key}.weight", np.stack(norms)) for key, norms in heads.items())
