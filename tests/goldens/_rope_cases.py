"""The RoPE tables: every scaling, with the numbers of well-known models where there are any."""

from typing import Any

from tests.goldens._case_types import Config, RopeCase

_SHORT = (0, 1, 2, 5, 13, 55, 233, 987)
# Time, height and width of the patches of an image between words.
_IMAGE = ((0, 1, 2, 2, 2, 2, 6, 7, 90), (0, 1, 2, 2, 23, 23, 6, 7, 90), (0, 1, 2, 33, 2, 43, 6, 7, 90))


def _config(rope: dict[str, Any] | None, *, H: int, max_positions: int, **others: Any) -> Config:
    """RoPE's part of a config; ``rope`` None leaves the field out. D = N H with N = 4."""
    config = {
        "model_type": "llama",
        "hidden_size": 4 * H,
        "num_attention_heads": 4,
        "head_dim": H,
        "max_position_embeddings": max_positions,
        **others,
    }
    return config if rope is None else {**config, "rope_parameters": rope}


_DYNAMIC = {"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 4.0}
_YARN = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 4096}
_LONGROPE = {
    "rope_type": "longrope",
    "rope_theta": 10000.0,
    "original_max_position_embeddings": 512,
    "short_factor": [1.0, 1.02, 1.05, 1.1, 1.2, 1.35, 1.6, 2.0],
    "long_factor": [1.0, 1.3, 2.1, 4.0, 8.5, 17.0, 31.0, 48.0],
}

ROPE_CASES = (
    RopeCase("default", _config({"rope_type": "default", "rope_theta": 10000.0}, H=10, max_positions=2048), _SHORT),
    RopeCase("default_theta", _config({"rope_type": "default", "rope_theta": 1e6}, H=128, max_positions=2048), _SHORT),
    RopeCase("default_4x", _config(None, H=12, max_positions=2048, rope_theta=5000.0, rope_scaling=None), _SHORT),
    RopeCase(
        "linear", _config({"rope_type": "linear", "rope_theta": 1e4, "factor": 2.5}, H=14, max_positions=4096), _SHORT
    ),
    RopeCase(
        "linear_4x",
        _config(None, H=14, max_positions=4096, rope_theta=1e4, rope_scaling={"type": "linear", "factor": 8.0}),
        _SHORT,
    ),
    RopeCase("dynamic_below", _config(_DYNAMIC, H=16, max_positions=512), (0, 1, 7, 100, 510)),
    RopeCase("dynamic_at", _config(_DYNAMIC, H=16, max_positions=512), (0, 1, 7, 100, 511)),
    RopeCase("dynamic_above", _config(_DYNAMIC, H=16, max_positions=512), (0, 1, 7, 100, 512)),
    RopeCase("dynamic_far", _config(_DYNAMIC, H=16, max_positions=512), (0, 1, 7, 511, 1999)),
    RopeCase(
        "llama3_1_8b",
        _config(
            {
                "rope_type": "llama3",
                "rope_theta": 500000.0,
                "factor": 8.0,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": 8192,
            },
            H=128,
            max_positions=131072,
        ),
        _SHORT,
    ),
    RopeCase(
        "llama3_2_1b_4x",
        _config(
            None,
            H=64,
            max_positions=131072,
            rope_theta=500000.0,
            rope_scaling={
                "factor": 32.0,
                "high_freq_factor": 4.0,
                "low_freq_factor": 1.0,
                "original_max_position_embeddings": 8192,
                "rope_type": "llama3",
            },
        ),
        _SHORT,
    ),
    RopeCase("yarn", _config(_YARN, H=64, max_positions=16384), _SHORT),
    RopeCase("yarn_no_truncate", _config({**_YARN, "truncate": False}, H=64, max_positions=16384), _SHORT),
    RopeCase("yarn_attention_factor", _config({**_YARN, "attention_factor": 0.75}, H=48, max_positions=16384), _SHORT),
    RopeCase(
        "yarn_mscale",
        _config({**_YARN, "factor": 40.0, "mscale": 1.0, "mscale_all_dim": 0.8}, H=64, max_positions=163840),
        _SHORT,
    ),
    RopeCase(
        "yarn_mscale_alone",
        _config({**_YARN, "factor": 40.0, "mscale": 0.7}, H=64, max_positions=163840),
        _SHORT,
    ),
    RopeCase("yarn_betas", _config({**_YARN, "beta_fast": 16.0, "beta_slow": 2.0}, H=80, max_positions=16384), _SHORT),
    RopeCase(
        "yarn_qwen2_5_4x",
        _config(
            None,
            H=128,
            max_positions=32768,
            rope_theta=1e6,
            rope_scaling={"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768},
        ),
        _SHORT,
    ),
    RopeCase(
        "yarn_original_length_absent",
        _config(None, H=32, max_positions=8192, rope_theta=1e4, rope_scaling={"rope_type": "yarn", "factor": 2.0}),
        _SHORT,
    ),
    RopeCase("longrope_short", _config(_LONGROPE, H=16, max_positions=4096), (0, 1, 7, 100, 511)),
    RopeCase("longrope_long", _config(_LONGROPE, H=16, max_positions=4096), (0, 1, 7, 100, 512)),
    RopeCase("longrope_factor", _config({**_LONGROPE, "factor": 2.0}, H=16, max_positions=4096), (0, 1, 7, 100, 3000)),
    RopeCase(
        "longrope_attention_factor",
        _config({**_LONGROPE, "attention_factor": 1.19}, H=16, max_positions=4096),
        (0, 1, 7, 100, 300),
    ),
    RopeCase(
        "partial_default",
        _config(
            {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.75},
            H=16,
            max_positions=4096,
            model_type="phi3",
        ),
        _SHORT,
    ),
    RopeCase(
        "partial_linear",
        _config(
            {"rope_type": "linear", "rope_theta": 1e4, "factor": 3.0, "partial_rotary_factor": 0.5},
            H=20,
            max_positions=4096,
        ),
        _SHORT,
    ),
    RopeCase("partial_yarn", _config({**_YARN, "partial_rotary_factor": 0.5}, H=96, max_positions=16384), _SHORT),
    RopeCase(
        "partial_llama3_4x",
        _config(
            None,
            H=40,
            max_positions=131072,
            rope_theta=500000.0,
            partial_rotary_factor=0.4,
            rope_scaling={
                "factor": 8.0,
                "high_freq_factor": 4.0,
                "low_freq_factor": 1.0,
                "original_max_position_embeddings": 8192,
                "rope_type": "llama3",
            },
        ),
        _SHORT,
    ),
    RopeCase(
        "sections",
        _config(
            {"rope_type": "default", "rope_theta": 100.0, "mrope_section": [2, 3, 3]},
            H=16,
            max_positions=32768,
            model_type="qwen2_vl",
        ),
        _IMAGE,
    ),
    RopeCase(
        "sections_interleaved",
        _config(
            {"rope_type": "default", "rope_theta": 50.0, "mrope_section": [4, 3, 3], "mrope_interleaved": True},
            H=20,
            max_positions=32768,
            model_type="qwen3_vl_text",
        ),
        _IMAGE,
    ),
)
