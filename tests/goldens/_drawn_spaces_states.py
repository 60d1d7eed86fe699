"""Spaces of families with short convolutions and state-space layers."""

import random
from typing import Any, Final

from tests.goldens._case_types import Config
from tests.goldens._drawn_space_types import ABSENT, Drawn, Space, decoder_space, divisor_of, up_to

_BOOLEANS: Final = [True, False, ABSENT]
_LIMITS: Final = [[0.0, {"__float__": "Infinity"}], [0.0, float("inf")], ABSENT, ABSENT, ABSENT, [0.0, 0.3]]
_SCALES: Final = [0.3, 1.4, ABSENT]


def _with_one(needed: str, *others: str) -> Drawn:
    """Returns a draw of a kind for each layer, one of them the needed one: transformers' caches want attention."""

    def kinds(config: Config, rng: random.Random) -> list[str]:
        drawn = [rng.choice((needed, *others)) for _ in range(config["num_hidden_layers"])]
        drawn[rng.randrange(len(drawn))] = needed
        return drawn

    return kinds


def _of(count: int) -> Drawn:
    return lambda config, rng: rng.choice([None, ABSENT, [rng.choice([0.4, 1.0, 1.7]) for _ in range(count)]])


def _heads_of(size: str, expand: str) -> Drawn:
    """Returns a draw of a number of heads that divides ``size`` times ``expand``."""
    return lambda config, rng: rng.choice(
        [heads for heads in (1, 2, 3, 4, 6) if config[size] * config[expand] % heads == 0]
    )


def _head_size(config: Config, rng: random.Random) -> Any:
    return rng.choice(["auto", config["hidden_size"] * config["mamba_expand"] // config["mamba_n_heads"]])


def _lfm2(model_type: str, architecture: str, **fields: list[Any] | Drawn) -> Space:
    return decoder_space(
        model_type,
        architecture,
        **{
            "rms_norm_eps": [ABSENT],
            "hidden_act": [ABSENT],
            "norm_eps": [1e-5, 1e-2, ABSENT],
            "conv_L_cache": [1, 2, 3, 4, ABSENT],
            "conv_bias": _BOOLEANS,
            "tie_embedding": [True, False, ABSENT, ABSENT],
            **fields,
        },
    )


def _mamba_space(model_type: str, architecture: str, **fields: list[Any] | Drawn) -> Space:
    return {
        "architectures": [[architecture]],
        "model_type": [model_type],
        "vocab_size": [61, 87, 93],
        "hidden_size": [24, 30, 36],
        "num_hidden_layers": [1, 2, 3],
        "state_size": [3, 5, ABSENT],
        "expand": [1, 2, ABSENT],
        "conv_kernel": [2, 4, ABSENT],
        "time_step_rank": ["auto", 3, ABSENT],
        "use_bias": _BOOLEANS,
        "use_conv_bias": _BOOLEANS,
        "layer_norm_epsilon": [1e-5, 1e-2, ABSENT],
        "hidden_act": ["silu", ABSENT],
        "tie_word_embeddings": _BOOLEANS,
        "bos_token_id": [1],
        "eos_token_id": [2],
        "pad_token_id": [None],
        **fields,
    }


_MAMBA: Final[Space] = {
    "mamba_expand": [1, 2],
    "mamba_n_heads": _heads_of("hidden_size", "mamba_expand"),
    "mamba_d_head": _head_size,
    "mamba_n_groups": divisor_of("mamba_n_heads"),
    "mamba_d_state": [3, 8, 10],
    "mamba_d_conv": [2, 3, 4, ABSENT],
    "mamba_chunk_size": [2, 8],
    "mamba_conv_bias": _BOOLEANS,
    "mamba_proj_bias": _BOOLEANS,
    "time_step_limit": _LIMITS,
}
_PATTERN: Final = _with_one("attention", "full_attention", "mamba", "mamba", "linear_attention", "mlp", "moe")
SPACES: Final[dict[str, Space]] = {
    "Lfm2ForCausalLM": _lfm2(
        "lfm2",
        "Lfm2ForCausalLM",
        block_auto_adjust_ff_dim=_BOOLEANS,
        block_ffn_dim_multiplier=[0.7, 1.0, 1.3, ABSENT],
        block_multiple_of=[1, 4, 10],
        block_ff_dim=[36, ABSENT],
        layer_types=_with_one("full_attention", "conv", "conv"),
        full_attn_idxs=lambda config, rng: rng.choice([ABSENT, [0], [config["num_hidden_layers"] - 1], []]),
    ),
    "Lfm2MoeForCausalLM": _lfm2(
        "lfm2_moe",
        "Lfm2MoeForCausalLM",
        layer_types=_with_one("full_attention", "conv", "conv"),
        moe_intermediate_size=[18, 26],
        num_dense_layers=[0, 1, 2, ABSENT],
        num_experts=[3, 5, 8],
        num_experts_per_tok=up_to("num_experts"),
        norm_topk_prob=_BOOLEANS,
        routed_scaling_factor=[1.0, 1.7, ABSENT],
        use_expert_bias=_BOOLEANS,
    ),
    "Mamba2ForCausalLM": {
        "architectures": [["Mamba2ForCausalLM"]],
        "model_type": ["mamba2"],
        "vocab_size": [61, 87, 93],
        "num_hidden_layers": [1, 2, 3],
        "hidden_size": [12, 24, 36],
        "expand": [1, 2, 3],
        "num_heads": _heads_of("hidden_size", "expand"),
        "head_dim": lambda config, rng: config["hidden_size"] * config["expand"] // config["num_heads"],
        "n_groups": divisor_of("num_heads"),
        "state_size": [3, 8, 10],
        "conv_kernel": [2, 3, 4, ABSENT],
        "layer_norm_epsilon": [1e-5, 1e-2, ABSENT],
        "hidden_act": ["silu", "gelu", "relu", ABSENT],
        "use_bias": _BOOLEANS,
        "use_conv_bias": _BOOLEANS,
        "residual_in_fp32": _BOOLEANS,
        "tie_word_embeddings": _BOOLEANS,
        "chunk_size": [2, 8],
        "time_step_limit": _LIMITS,
        "initializer_range": [0.1],
        "pad_token_id": [None],
    },
    "GraniteMoeHybridForCausalLM": decoder_space(
        "granitemoehybrid",
        "GraniteMoeHybridForCausalLM",
        **{
            **_MAMBA,
            "attention_bias": _BOOLEANS,
            "head_dim": [ABSENT, ABSENT, 8],
            "layer_types": _with_one("attention", "mamba", "mamba"),
            "num_local_experts": [0, 3, 5],
            "num_experts_per_tok": lambda config, rng: rng.randint(1, max(1, config["num_local_experts"])),
            "shared_intermediate_size": [18, 26],
            "position_embedding_type": ["rope", "nope", None, ABSENT],
            "attention_multiplier": _SCALES,
            "embedding_multiplier": _SCALES,
            "residual_multiplier": _SCALES,
            "logits_scaling": _SCALES,
        },
    ),
    "FalconH1ForCausalLM": decoder_space(
        "falcon_h1",
        "FalconH1ForCausalLM",
        **{
            **_MAMBA,
            "mamba_d_ssm": lambda config, rng: rng.choice([None, config["hidden_size"] * config["mamba_expand"]]),
            "mamba_norm_before_gate": _BOOLEANS,
            "mamba_rms_norm": _BOOLEANS,
            "projectors_bias": _BOOLEANS,
            "attention_bias": _BOOLEANS,
            "mlp_bias": _BOOLEANS,
            "mlp_multipliers": _of(2),
            "ssm_multipliers": _of(5),
            **dict.fromkeys(
                (
                    *("key_multiplier", "attention_in_multiplier", "attention_out_multiplier", "ssm_in_multiplier"),
                    *("ssm_out_multiplier", "embedding_multiplier", "lm_head_multiplier"),
                ),
                _SCALES,
            ),
        },
    ),
    "NemotronHForCausalLM": decoder_space(
        "nemotron_h",
        "NemotronHForCausalLM",
        num_hidden_layers=[1, 3, 4],
        rms_norm_eps=[ABSENT],
        hidden_act=[ABSENT],
        rope_parameters=[ABSENT],
        tie_word_embeddings=[False, False, False, ABSENT, ABSENT, True],
        layers_block_type=lambda config, rng: (
            ABSENT if config["num_hidden_layers"] == 4 and rng.random() < 0.2 else _PATTERN(config, rng)
        ),
        layer_norm_epsilon=[1e-5, 1e-2, ABSENT],
        mlp_hidden_act=["relu2", "relu", "silu", ABSENT],
        mlp_bias=_BOOLEANS,
        attention_bias=_BOOLEANS,
        mamba_num_heads=[2, 4, 6],
        mamba_head_dim=[3, 8],
        n_groups=divisor_of("mamba_num_heads"),
        mamba_hidden_act=["silu", "gelu", ABSENT],
        ssm_state_size=[3, 8],
        conv_kernel=[2, 4, ABSENT],
        mamba_d_conv=[ABSENT, ABSENT, 3],
        use_bias=_BOOLEANS,
        use_conv_bias=_BOOLEANS,
        time_step_limit=_LIMITS,
        time_step_min=[1e-7],  # transformers holds prompts to it, but not the tokens after them
        chunk_size=[2, 8],
        n_routed_experts=[4, 6],
        n_group=[1, 2],
        topk_group=up_to("n_group"),
        num_experts_per_tok=[1, 2],
        moe_intermediate_size=[18, 26],
        moe_shared_expert_intermediate_size=[14, 20],
        moe_latent_size=[None, 10, ABSENT],
        norm_topk_prob=_BOOLEANS,
        routed_scaling_factor=[1.0, 1.7, ABSENT],
    ),
    "MambaForCausalLM": _mamba_space("mamba", "MambaForCausalLM"),
    "FalconMambaForCausalLM": _mamba_space(
        "falcon_mamba", "FalconMambaForCausalLM", mixer_rms_eps=[1e-6, 1e-2, ABSENT]
    ),
    "JambaForCausalLM": decoder_space(
        "jamba",
        "JambaForCausalLM",
        head_dim=[ABSENT],
        rope_parameters=[ABSENT],
        num_experts=[1, 3, 4],
        num_experts_per_tok=[1, 2],
        expert_layer_period=[2, 3],
        expert_layer_offset=[0, 1],
        attn_layer_period=[2, 3],
        attn_layer_offset=[0],
        mamba_d_state=[3, 5],
        mamba_d_conv=[2, 4],
        mamba_expand=[1, 2],
        mamba_dt_rank=["auto", 3, ABSENT],
        mamba_conv_bias=_BOOLEANS,
        mamba_proj_bias=_BOOLEANS,
    ),
    "BambaForCausalLM": decoder_space(
        "bamba",
        "BambaForCausalLM",
        **{
            **_MAMBA,
            "head_dim": [ABSENT],
            "hidden_size": lambda c, rng: c["num_attention_heads"] * rng.choice([8, 16]),
        },
        attn_layer_indices=lambda config, rng: sorted({0, rng.randrange(config["num_hidden_layers"])}),
        attention_bias=_BOOLEANS,
        mlp_bias=_BOOLEANS,
    ),
}
