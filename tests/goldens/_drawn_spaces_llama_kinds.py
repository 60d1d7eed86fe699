"""Spaces of dense families that are nearly a Llama."""

import random
from typing import Any, Final

from tests.goldens._case_types import Config
from tests.goldens._drawn_space_types import ABSENT, Drawn, Space, decoder_space, partial_rope, per_layer, rope

_FLAGS: Final = [True, False, ABSENT]
_TYPES: Final = per_layer("full_attention", "sliding_attention")
_WHOLE_HEADS: Final[dict[str, Any]] = {"head_dim": [ABSENT]}
_LAYER_NORMS: Final[dict[str, Any]] = {"rms_norm_eps": [ABSENT], "layer_norm_eps": [1e-5, 1e-2, ABSENT]}


def _ropes_by_kind(config: Config, rng: random.Random) -> Any:
    """Draws RoPE for each kind of layers; sometimes none."""
    full, sliding = rope(config, rng), rope(config, rng)
    if full is ABSENT or sliding is ABSENT:
        return ABSENT
    return {"full_attention": full, "sliding_attention": sliding}


def _growing_rope(config: Config, rng: random.Random) -> Any:
    """Draws RoPE whose fields have the growth of queries; sometimes without it."""
    drawn = rope(config, rng)
    if drawn is ABSENT:
        return ABSENT
    growth = {
        "llama_4_scaling_beta": rng.choice([0.1, 0.7, 0.0]),
        "original_max_position_embeddings": rng.choice([4, 16]),
    }
    return rng.choice([{**drawn, **growth}, {**drawn, **growth}, {**drawn, **growth}, drawn])


def _rope_or_alpha(config: Config, rng: random.Random) -> Any:
    """Draws RoPE, by turns stretched by an alpha."""
    if rng.random() < 0.6:
        return rope(config, rng)
    alpha = rng.choice([1000.0, 30.0, 2])
    return {"rope_type": "dynamic", "rope_theta": rng.choice([100.0, 10000.0]), "factor": 1.0, "alpha": alpha}


def _kv_heads(config: Config, rng: random.Random) -> Any:
    sizes = [size for size in range(1, config["num_attention_heads"] + 1) if config["num_attention_heads"] % size == 0]
    return rng.choice([*sizes, None])


def _space(model_type: str, architecture: str, **fields: list[Any] | Drawn) -> Space:
    return decoder_space(model_type, architecture, num_key_value_heads=_kv_heads, **fields)


SPACES: Final[dict[str, Space]] = {
    "Olmo3ForCausalLM": _space(
        "olmo3",
        "Olmo3ForCausalLM",
        **_WHOLE_HEADS,
        rope_parameters=_ropes_by_kind,
        rope_theta=[ABSENT, ABSENT, 500000.0, 300.0],
        attention_bias=_FLAGS,
        layer_types=_TYPES,
        sliding_window=[3, 5, ABSENT, None],
    ),
    "Ministral3ForCausalLM": decoder_space(
        "ministral3",
        "Ministral3ForCausalLM",
        rope_parameters=_growing_rope,
        sliding_window=[3, None, ABSENT],
    ),
    "CohereForCausalLM": _space(
        "cohere",
        "CohereForCausalLM",
        **_WHOLE_HEADS,
        **_LAYER_NORMS,
        attention_bias=_FLAGS,
        logit_scale=[0.5, 2.0, ABSENT],
        use_qk_norm=[False, ABSENT, False, True],
    ),
    "Cohere2ForCausalLM": _space(
        "cohere2",
        "Cohere2ForCausalLM",
        head_dim=lambda config, rng: rng.choice([ABSENT, ABSENT, 8]),
        **_LAYER_NORMS,
        attention_bias=_FLAGS,
        logit_scale=[0.5, 2.0, ABSENT],
        layer_types=_TYPES,
        sliding_window=[3, 5, ABSENT, None],
        sliding_window_pattern=[2, 3, ABSENT],
    ),
    "Exaone4ForCausalLM": decoder_space(
        "exaone4",
        "Exaone4ForCausalLM",
        layer_types=_TYPES,
        sliding_window=[3, 5, ABSENT, None],
        sliding_window_pattern=[2, 3, ABSENT, "LLG"],
    ),
    "HunYuanDenseV1ForCausalLM": _space(
        "hunyuan_v1_dense",
        "HunYuanDenseV1ForCausalLM",
        rope_parameters=_rope_or_alpha,
        attention_bias=_FLAGS,
    ),
    "SeedOssForCausalLM": _space(
        "seed_oss",
        "SeedOssForCausalLM",
        attention_bias=_FLAGS,
        attention_out_bias=_FLAGS,
        mlp_bias=_FLAGS,
    ),
    "Ernie4_5ForCausalLM": _space(
        "ernie4_5",
        "Ernie4_5ForCausalLM",
        use_bias=_FLAGS,
    ),
    "PhiForCausalLM": _space(
        "phi",
        "PhiForCausalLM",
        **_LAYER_NORMS,
        head_dim=[ABSENT],
        hidden_size=lambda config, rng: config["num_attention_heads"] * rng.choice([8, 12, 16]),
        rope_parameters=partial_rope(0.5),
        hidden_act=["gelu_new", "gelu", "relu", ABSENT],
        qk_layernorm=[False, ABSENT, False, True],
    ),
    "Starcoder2ForCausalLM": decoder_space(
        "starcoder2",
        "Starcoder2ForCausalLM",
        rms_norm_eps=[ABSENT],
        norm_epsilon=[1e-5, 1e-2, ABSENT],
        hidden_act=["gelu_pytorch_tanh", "silu", ABSENT],
        use_bias=_FLAGS,
        sliding_window=[3, 5, None, ABSENT],
    ),
    "NemotronForCausalLM": decoder_space(
        "nemotron",
        "NemotronForCausalLM",
        rms_norm_eps=[ABSENT],
        norm_eps=[1e-5, 1e-2, ABSENT],
        head_dim=[8, 12],
        rope_parameters=partial_rope(0.5),
        hidden_act=["relu2", "silu", ABSENT],
        attention_bias=_FLAGS,
        mlp_bias=_FLAGS,
    ),
    "ArceeForCausalLM": _space(
        "arcee",
        "ArceeForCausalLM",
        hidden_act=["relu2", "silu", ABSENT],
        attention_bias=_FLAGS,
        mlp_bias=_FLAGS,
    ),
    "HeliumForCausalLM": decoder_space(
        "helium",
        "HeliumForCausalLM",
        head_dim=lambda config, rng: rng.choice([8, 10]),
        hidden_size=lambda config, rng: config["num_attention_heads"] * rng.choice([config["head_dim"]] * 3 + [12]),
        attention_bias=_FLAGS,
        mlp_bias=_FLAGS,
    ),
}
