"""RoPE in GGUF files: fields and tensors, as llama.cpp's converter makes them."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from gguf import GGUFWriter, RopeScalingType

from tests.goldens._case_types import Config
from tests.goldens.gguf_gemma import gemma_rope_divisors


def head_size(config: Config) -> int:
    """H."""
    if config["model_type"] == "gpt2":
        return config["n_embd"] // config["n_head"]
    return config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]


def rope_of(config: Config) -> dict[str, Any]:
    """RoPE's fields in either form."""
    rope = config.get("rope_parameters") or {}
    rope = rope.get("full_attention", rope)
    local = (config.get("rope_parameters") or {}).get("sliding_attention", {}).get("rope_theta")
    scaling = config.get("rope_scaling") or {}
    kind = rope.get("rope_type") or scaling.get("rope_type") or scaling.get("type") or "default"
    base = config.get("rope_theta") or config.get("rotary_emb_base") or 10000.0
    return {"rope_theta": base, "local": local, **scaling, **rope, "rope_type": kind}


def rope_tensors(config: Config, name: str) -> dict[str, np.ndarray]:
    """Tensors with divisors of frequencies."""
    rope = rope_of(config)
    if name == "gemma4":
        return {"rope_freqs.weight": gemma_rope_divisors(config)}
    if rope["rope_type"] == "llama3":
        return {"rope_freqs.weight": _llama3_divisors(rope, head_size(config))}
    if name == "phi3" and rope["rope_type"] in ("longrope", "su"):
        both = {"short": rope["short_factor"], "long": rope["long_factor"]}
        return {f"rope_factors_{which}.weight": np.array(factors, np.float32) for which, factors in both.items()}
    return {}


def _llama3_divisors(rope: Mapping[str, Any], size: int) -> np.ndarray:
    low, high, factor = rope["low_freq_factor"], rope["high_freq_factor"], rope["factor"]
    original, divisors = rope["original_max_position_embeddings"], []
    for exponent in np.arange(0, size, 2) / size:
        length = 2 * math.pi * rope["rope_theta"] ** exponent
        if length < original / high:
            divisors.append(1.0)
        elif length > original / low:
            divisors.append(factor)
        else:
            smooth = (original / length - low) / (high - low)
            divisors.append(1 / ((1 - smooth) / factor + smooth))
    return np.array(divisors, np.float32)


def add_rope(writer: GGUFWriter, config: Config, name: str) -> None:
    """Adds RoPE's fields."""
    rope, size = rope_of(config), head_size(config)
    share = rope.get("partial_rotary_factor") or config.get("partial_rotary_factor") or config.get("rotary_pct") or 1.0
    share = config["rotary_dim"] / size if "rotary_dim" in config else share
    writer.add_rope_freq_base(rope["rope_theta"])
    writer.add_rope_dimension_count(int(size * share))
    if rope["local"] and name == "gemma3":
        writer.add_rope_freq_base_swa(rope["local"])
    if rope["rope_type"] == "linear":
        writer.add_rope_scaling_type(RopeScalingType.LINEAR)
        writer.add_rope_scaling_factor(rope["factor"])
    if rope["rope_type"] == "yarn":
        writer.add_rope_scaling_type(RopeScalingType.YARN)
        writer.add_rope_scaling_factor(rope["factor"])
        writer.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
        writer.add_rope_scaling_yarn_beta_fast(rope.get("beta_fast", 32.0))
        writer.add_rope_scaling_yarn_beta_slow(rope.get("beta_slow", 1.0))
    if name == "phi3":
        original = rope.get("original_max_position_embeddings") or config["original_max_position_embeddings"]
        writer.add_rope_scaling_orig_ctx_len(original)
        scale = config["max_position_embeddings"] / original
        if rope["rope_type"] in ("longrope", "su"):
            writer.add_rope_scaling_attn_factors(
                math.sqrt(1 + math.log(scale) / math.log(original)) if scale > 1 else 1.0
            )
